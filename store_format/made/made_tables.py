"""The tables from which `made_messages` makes messages: topics, their choices, and texts.

Not the broker's code. The changes that the broker makes to a delayed message before it writes it (put_message.scheduled) are already in the
tables.
Rule: numbers and texts lie in arrays, so that compiled code takes them as one argument; a text is (start, length).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes

Longs = NDArray[np.int64]

# kinds of a property: its value is CHOSEN among given texts, or made in the way that the kind names
CHOSEN, UNIQ_KEY, KEYS, DELAY, REAL_TOPIC, REAL_QUEUE_ID = range(6)

# columns of Tables.topics; *_FIRST and *_COUNT are rows of the choices, or of hosts or properties
(
    QUEUE_FIRST,
    QUEUE_COUNT,
    LEVEL_FIRST,
    LEVEL_COUNT,
    KIND_FIRST,
    KIND_COUNT,
    BODY_MIN,
    BODY_MAX,
    KEYS_MIN,
    KEYS_MAX,
    KEYS_DISTINCT,
    KEY_PREFIX,
    KEY_PREFIX_LENGTH,
    TOPIC,
    TOPIC_LENGTH,
    HOST_FIRST,
    HOST_COUNT,
    PROPERTY_FIRST,
    PROPERTY_COUNT,
    QUEUE_NUMBER,
    BATCH_MIN,
    BATCH_MAX,
    MAX_BYTES,
    TOPIC_COLUMNS,
) = range(24)
# columns of Tables.properties
PROPERTY_KIND, PROPERTY_NAME, PROPERTY_NAME_LENGTH, CHOICE_FIRST, CHOICE_COUNT, PROPERTY_COLUMNS = range(6)


class Tables(NamedTuple):
    """The tables from which messages are made.

    Attributes:
        topic_shares: share of each topic in all sends, cumulative; the last one is 1.
        topics: a row for each topic, with the columns above.
        shares: share of each choice in its group, cumulative within the group.
        values: number of each choice: a delay level, or bits of sysFlag.
        choice_text: (start, length) in `text` of each choice.
        properties: a row for each property of each topic, in the order in which they are written.
        hosts: (start, length) in `text` of each producer's address and port.
        text: the bytes of names, values and hosts.
        delay_topic: (start, length) in `text` of the delay topic's name, and the number of the queue of delay level 1.
        store_host: (start, length) in `text` of the broker's address and port.
        numbers: seed, time of the first message in ms, time in ms at which the month of the first message begins.
        gap_ms: mean time between sends, ms.
    """

    topic_shares: NDArray[np.float64]
    topics: Longs
    shares: NDArray[np.float64]
    values: Longs
    choice_text: Longs
    properties: Longs
    hosts: Longs
    text: Bytes
    delay_topic: Longs
    store_host: Longs
    numbers: Longs
    gap_ms: float
