"""The tables that made-up messages are made of: topics with their choices, and the texts of both.

No code of the broker; what it makes of a message before it writes it (put_message.scheduled) is already in them.
Rule: numbers and texts lie in arrays, so that compiled code takes them as one argument; a text is (start, length).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from store_format.big_endian import Bytes

Longs = NDArray[np.int64]

# kinds of a property: a text that is chosen, or one that is made
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
    """What messages are made of.

    Attributes:
        topic_shares: of all sends, cumulative, the last one 1.
        topics: a row for each topic, see the columns above.
        shares: of the choices, cumulative within each group of them.
        values: number of each choice: delay level, or bits of sysFlag.
        choice_text: (start, length) in `text` of each choice.
        properties: a row for each property of each topic, in the order in which they are written.
        hosts: (start, length) of each producer's address and port in `text`.
        text: names, values, hosts.
        delay_topic: (start, length) of the delay topic's name, the number of the queue of its level 1.
        store_host: (start, length) of the broker's address and port.
        numbers: seed, first message's time in ms, begin of the month of it in ms.
        gap_ms: mean time between sends.
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
