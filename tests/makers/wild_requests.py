"""Makes requests at random times and offsets on made stores, and the settings under which they are answered."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from pipeline.settings.settings import load_catalogue
from tests.makers.made_store import MadeStore, Record
from tests.runs.replaying import Line, with_raw_messages

# near the log's end as of most times, so that an entry can be in memory for one pull and on disk for another
MEMORY = 1_000_000


CAPS = [
    *("maxTransferBytesOnMessageInMemory=20000", "maxTransferCountOnMessageInMemory=900"),
    *("maxTransferBytesOnMessageInDisk=3000", "maxTransferCountOnMessageInDisk=17"),
    f"totalPhysicalMemorySize={MEMORY}",
]


def wild_records(count: int) -> Iterator[Record]:
    """Messages of one long queue and some short ones. Their stamps grow, repeat, fall, and are sometimes far off."""
    digits = random.Random(11)
    for number in range(count):
        stamp = 1_000_000 + number // 3 * 10 + digits.choice([0, 0, 0, digits.randint(-900, 900)])
        if digits.random() < 0.002:
            stamp = digits.choice([stamp + 100_000, 2**63 - 1, stamp - 5_000 if number > 4_000 else digits.randint(0, stamp)])
        topic = "Long" if digits.random() < 0.9 else "Short"
        queue_id = 0 if topic == "Long" else digits.randrange(3)
        yield Record(
            topic=topic, queue_id=queue_id, tag=digits.choice(["TagA", "TagB", None]), stamp=stamp, body=bytes(digits.randint(0, 9))
        )


def settings_of(options: list[str]) -> dict[str, Any]:
    """The broker's defaults with some options, as a trace's header has them."""
    from pipeline.settings.settings import BrokerSettings

    settings = BrokerSettings.from_sources(options=options)
    return {name: settings.value(name) for name in load_catalogue()}


def pulls(digits: random.Random, made: MadeStore, count: int) -> Iterator[Line]:
    for _ in range(count):
        (topic, queue_id), bounds = digits.choice([*made.queues.items(), *[(("Long", 0), made.queues["Long", 0])] * 5])
        edge = digits.choice([0, 8191, 8192, 16383, 16384, 19999, 20000, bounds.max_offset, digits.randint(0, bounds.max_offset)])
        yield {
            "group": "g",
            "topic": topic,
            "queueId": queue_id,
            "offset": edge + digits.choice([-801, -800, -2, -1, 0, 0, 0, 1]),
            "maxMsgNums": digits.choice([0, 1, 32, 32, 32, 900, 5000, -1]),
            "filter": digits.choice([None, {"type": "TAG", "expression": "TagA"}, {"type": "TAG", "expression": "TagB || none"}]),
        }


def times(digits: random.Random, stamps: list[int]) -> Iterator[int]:
    """Times around the stamps of a store, and times far outside of their range."""
    while True:
        around = digits.choice(stamps) + digits.choice([-1, 0, 0, 1])
        yield digits.choice([around] * 20 + [0, -1, -(2**63), 2**63 - 1, min(stamps) - 1])


def raw(lines: list[Line]) -> list[Line]:
    return [line | {"response": with_raw_messages(line["response"])} for line in lines]
