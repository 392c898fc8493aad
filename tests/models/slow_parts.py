"""The objects of `slow_group`: messages in queues, batches, holds on queues, clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from udfs.consumer.offset_store import LocalFileOffsetStore, RemoteBrokerOffsetStore
from udfs.consumer.offset_tree import MessageExt
from udfs.consumer.pull_message import PullRequest


class Always:
    """The filter of a waiting pull. It matches everything: `hold.woken_at` has an argument that says whether each message matches."""

    def is_matched_by_consume_queue(self, tags_code: int | None, ext_unit: object) -> bool:
        return True

    def is_matched_by_commit_log(self, properties: object) -> bool:
        return True


@dataclass(frozen=True)
class Came:
    """A message in a queue."""

    time: int
    verdict: int
    body: int
    record: int
    origin: tuple[int, int, int]  # queue, offset, tries


@dataclass(eq=False)
class Batch:
    slot: Slot
    place: int
    messages: Sequence[MessageExt]
    started: int = 0
    failed: bool = False


@dataclass(eq=False)
class Slot:
    number: int
    client: Client
    queue: int
    request: PullRequest
    put: int = 0
    events: int = 0
    queued: int = 0
    working: int = 0
    answered_at: int | None = None
    as_of: int = 0
    asked_at: int = 0
    last_pull: int = 0
    pulled: dict[int, int] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    began: int | None = None
    ends: int = 0

    @property
    def dropped(self) -> bool:
        return self.request.process_queue.dropped


@dataclass(eq=False)
class Client:
    number: int
    store: RemoteBrokerOffsetStore | LocalFileOffsetStore = field(default_factory=RemoteBrokerOffsetStore)
    alive: bool = True
    busy: int = 0
    stalled_until: int = 0
    line: deque[Batch] = field(default_factory=deque)
    slots: list[Slot] = field(default_factory=list)


@dataclass(frozen=True)
class Unordered:
    """The subject of an event; the order of events never depends on it."""

    what: object

    def __lt__(self, other: object) -> bool:
        return False
