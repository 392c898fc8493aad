"""What load, start and a clean shutdown of each version do to the files of a store; nothing is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pipeline.files.store_files import StoreFiles
from pipeline.importing.load_store import with_extension
from pipeline.importing.start_store import bounds
from pipeline.settings.settings import BrokerSettings
from pipeline.store.filter_bit_maps import bit_map_of
from pipeline.store.message_store import store_over
from pipeline.store.store_settings import store_settings
from store_format.files.mapped_files import max_offset, min_offset
from store_format.store_paths import ABORT_FILE

_SHOWN = 20
Queue = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedFiles:
    """A store after load, start and a clean shutdown by one version.

    Attributes:
        load: whether load succeeds; the broker stops if not.
        start: "ok", or how start ends; None if load fails.
        log_min: first offset of the commit log.
        log_max: end of the commit log.
        dispatched: messages that load and start dispatch again to queues and index.
        deleted: paths of the files that are deleted, except the file abort.
        changed: paths of the files that have other bytes afterwards or are new, except the file abort.
        queues: (minOffset, maxOffset) by topic and queueId.
    """

    load: bool
    start: str | None
    log_min: int
    log_max: int
    dispatched: int
    deleted: tuple[str, ...]
    changed: tuple[str, ...]
    queues: dict[Queue, tuple[int, int]]

    @property
    def entries(self) -> int:
        """The number of entries in all queues."""
        return sum(end - least for least, end in self.queues.values())

    @property
    def ends(self) -> tuple[Any, ...]:
        """Where the commit log begins and ends, and where each queue with entries ends."""
        return self.log_min, self.log_max, {queue: end for queue, (_, end) in self.queues.items() if end}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedStarts:
    """The same store as two versions leave it.

    Attributes:
        before: as the earlier version leaves it.
        after: as the later version leaves it.
        queues_differ: number of queues with other bounds.
        queues: the first of these queues: topic, queueId, and before and after, each (minOffset, maxOffset), None without the queue.
    """

    before: StartedFiles
    after: StartedFiles
    queues_differ: int
    queues: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON."""
        sides = {
            name: {key: value for key, value in asdict(side).items() if key != "queues"} | {"entries": side.entries}
            for name, side in self.sides()
        }
        return sides | {"queuesDiffer": self.queues_differ, "queues": self.queues}

    def sides(self) -> tuple[tuple[str, StartedFiles], ...]:
        """Both sides by name."""
        return ("before", self.before), ("after", self.after)


def compare_starts(store: str, earlier: BrokerSettings, later: BrokerSettings) -> ComparedStarts:
    """Load and start a store by two versions, in memory.

    Args:
        store: directory of the store, which is only read.
        earlier: settings of the broker with the earlier version.
        later: settings of the broker with the later version.

    Raises:
        StoreError: the directory is no store.
    """
    files = StoreFiles(store)
    files.check_exists()
    before, after = (_started(files, with_extension(settings, files)) for settings in (earlier, later))
    names = sorted(before.queues.keys() | after.queues.keys())
    differ = [name for name in names if before.queues.get(name) != after.queues.get(name)]
    rows = [
        {"topic": topic, "queueId": number, "before": before.queues.get((topic, number)), "after": after.queues.get((topic, number))}
        for topic, number in differ[:_SHOWN]
    ]
    return ComparedStarts(before=before, after=after, queues_differ=len(differ), queues=rows)


def _started(files: StoreFiles, settings: BrokerSettings) -> StartedFiles:
    store = store_over(files, store_settings(files, settings), bit_map_of(files, settings))
    loaded = store.load()
    in_load = store.dispatcher.count if loaded else 0
    started = store.start() if loaded else None
    state: dict[str, Any] = {
        "log_min": min_offset(store.log_files),
        "log_max": max_offset(store.log_files),
        "dispatched": in_load + (store.dispatcher.count if loaded else 0),
        "queues": {(queue.topic, queue.queue_id): bounds(queue) for queue in store.queues.values() if queue.files or queue.has_folder},
    }
    if started == "ok":
        store.shutdown()
    deleted, changed = ({path for path in paths if path != (ABORT_FILE,)} for paths in (store.files.deleted, store.files.changes))
    return StartedFiles(
        load=loaded,
        start=started,
        deleted=tuple(sorted("/".join(path) for path in deleted)),
        changed=tuple(sorted("/".join(path) for path in changed)),
        **state,
    )
