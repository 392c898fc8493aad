"""Checks a store, or a copy of a store, file by file: each file is read, written again and compared, and entries are looked up.

A task checks a file of the commit log, a group of topics, or other files. The results of all tasks are summed: each queue must have as many
entries as messages. The check of a file needs memory for its mapped pages and for one batch of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.files.store_files import StoreFiles
from pipeline.importing.found_store import odd_queues
from pipeline.rows.log_batches import walks
from pipeline.rows.unmapped_files import beside_mapped_files, beside_queues
from pipeline.schema.arrow_types import arrow_of
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings
from pipeline.store import load_files as lf
from pipeline.store.open_log import OpenLog
from pipeline.store.refused_parts import refuse_parts
from pipeline.store.store_settings import index_sizes
from pipeline.tasks.work import Batches, Tasks, Work, of_items
from pipeline.verify.verify_files import NOT_CHECKED, OtherFiles
from pipeline.verify.verify_log import Checked, Finding, LogFiles, verify_log_file, verify_queue_file
from store_format.broker_version import BrokerVersion
from store_format.errors import CorruptStoreError
from store_format.files.files import Entry, FilePath
from store_format.files.mapped_files import MappedFile, is_mapped_file_name
from store_format.index.index_file import IndexSizes
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.record import record_columns as rc
from store_format.store_paths import COMMIT_LOG, CONSUME_QUEUE, INDEX

# columns of a finding, and those by which findings are sorted
FINDING_DDL = "code STRING, path STRING, text STRING, messages BIGINT, queueOffset BIGINT, physicOffset BIGINT, physicEnd BIGINT"
_FINDINGS = arrow_of(FINDING_DDL)
FINDING = tuple(_FINDINGS.names)
FILE = ("path", "kind", "length", "text")
BY_PLACE = ("path", "code", "physicOffset", "queueOffset", "text")
Progress = Callable[[str], None]
# each task maps the commit log anew, so few tasks a core; two are enough for all cores to end at about the same time
_TASKS_A_CORE = 2
_FILES_A_TASK = 64

_DDL = (
    "row STRING, path STRING, kind STRING, length BIGINT, code STRING, text STRING, topic STRING, queueId INT, messages BIGINT, "
    "queueOffset BIGINT, physicOffset BIGINT, physicEnd BIGINT"
)
_ROWS = arrow_of(_DDL)


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a check, by path: a row of FILE for each file, whose text is its result, and a row of FINDING for each finding."""

    files: Work
    findings: Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Queues of some topics for one task: every `shares`-th queue of each topic, beginning with the queue at `number`."""

    names: tuple[str, ...]
    number: int = 0
    shares: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The files that each task checks: groups of other files, then shares of topics, then a log file a task. `odd` has finished results.

    The largest come first, so that no large file is left when the other tasks are done.
    """

    log: LogFiles
    log_files: tuple[MappedFile, ...]
    topics: tuple[Topics, ...]
    queue_size: int
    others: tuple[tuple[tuple[FilePath, Entry], ...], ...]
    checks: OtherFiles
    odd: tuple[Checked, ...]

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return len(self.log_files) + len(self.topics) + len(self.others)

    def run(self, task: int) -> Iterator[Checked]:
        """Check the files of one task; yield the result of each file."""
        if task < len(self.others):
            for path, entry in self.others[task]:
                yield self.checks.verify(path, entry)
            return
        task -= len(self.others)
        if task < len(self.topics):
            for topic in self.topics[task].names:
                yield from self._topic(topic, self.topics[task])
            return
        task -= len(self.topics)
        yield verify_log_file(self.log, self.log_files[task], is_last=task >= len(self.log.files) - 1)

    def _topic(self, topic: str, share: Topics) -> Iterator[Checked]:
        store = self.log.store
        odd_names = odd_queues(store, [topic])
        store = store.changed({}, frozenset(odd_names))
        for queue_id in lf.queue_ids(store, topic)[share.number :: share.shares]:
            folder = (CONSUME_QUEUE, topic, str(queue_id))
            files, odd = _mapped(store, folder, self.queue_size)
            yield from odd
            for index, file in enumerate(files):
                yield verify_queue_file(self.log, (topic, queue_id), file, is_last=index == len(files) - 1)
        if share.number:
            return
        yield from map(_odd_queue, odd_names)
        for path, entry in beside_queues(store, topic):
            if entry is not None:
                yield Checked("/".join(path), CONSUME_QUEUE, entry.length, NOT_CHECKED)


def verify_store(tasks: Tasks, path: str, settings: BrokerSettings, progress: Progress, *, cores: int) -> Verified:
    """Check every file of a store.

    Args:
        tasks: check the files.
        path: directory or URI of the store, which is only read.
        settings: have the lengths of files that do not show their length themselves.
        progress: called with a line about each step.
        cores: the number of tasks that run at the same time.

    Raises:
        StoreError: the path is no store, a part of the store is not modelled, or it cannot be read.
    """
    store = StoreFiles(path)
    store.check_store()
    refuse_parts(store, settings)
    progress("finding the end of the commit log")
    plan = plan_of(store, settings, _TASKS_A_CORE * cores)
    progress(f"checking the files in {plan.tasks:,} tasks")
    rows = of_items(tasks, range(plan.tasks), lambda task: map(_rows, plan.run(task)), _DDL)
    if plan.odd:
        rows = rows.joined(tasks.of_rows(pa.Table.from_batches(map(_rows, plan.odd), _ROWS)))
    return _verified(rows.once(), tasks.parallelism)


def plan_of(store: StoreFiles, settings: BrokerSettings, topic_tasks: int) -> Plan:
    """The plan that distributes the files of a store over tasks, the queues over about `topic_tasks`. It reads the last commit log file."""
    sampled = store.changed({}, frozenset(odd_queues(store, lf.topics(store)[: lf.SAMPLED_TOPICS])))
    sizes = lf.file_sizes(sampled, {name: settings.explicit(name) for name in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")})
    log_files, odd = _mapped(store, (COMMIT_LOG,), sizes.commit_log)
    filled, newest = _filled(store, log_files, settings.version)
    log = LogFiles(store=store, files=filled, opened=OpenLog(store), version=settings.version)
    names = lf.topics(store)
    beside = [(path, entry) for path, entry in beside_mapped_files(store, has_log=True) if entry is not None]
    large = [(one,) for one in beside if one[0][0] == INDEX]
    small = [one for one in beside if one[0][0] != INDEX]
    return Plan(
        log=log,
        log_files=log_files,
        topics=tuple(_shared(names, topic_tasks)),
        queue_size=sizes.consume_queue,
        others=(*large, *(tuple(small[start : start + _FILES_A_TASK]) for start in range(0, len(small), _FILES_A_TASK))),
        checks=OtherFiles(log, sizes.consume_queue, _index_sizes(store, settings), newest),
        odd=tuple(odd),
    )


def _odd_queue(path: FilePath) -> Checked:
    checked = Checked("/".join(path), CONSUME_QUEUE, 0)
    checked.find("QUEUE_NAME", f"expected a queue's number as the broker writes it, found {path[-1]!r}; what is in it is not checked")
    return checked


def _shared(names: Sequence[str], tasks: int) -> Iterator[Topics]:
    """The topics of each task: several topics a task, or several tasks a topic."""
    count = min(tasks, len(names))
    shares = tasks // max(count, 1)
    for start in range(count):
        yield from (Topics(names=tuple(names[start::count]), number=number, shares=shares) for number in range(shares))


def _index_sizes(store: StoreFiles, settings: BrokerSettings) -> IndexSizes | None:
    try:
        return index_sizes(store, settings)
    except CorruptStoreError:
        return None


def _mapped(store: StoreFiles, folder: FilePath, size: int) -> tuple[tuple[MappedFile, ...], list[Checked]]:
    """The mapped files of a folder, and the results of all other files in it; a broker does not start with them."""
    files: list[MappedFile] = []
    odd: list[Checked] = []
    entries = store.folder(*folder)
    for entry in entries:
        if not entry.is_folder and is_mapped_file_name(entry.name) and entry.length == size and int(entry.name) % size == 0:
            files.append(MappedFile(name=entry.name, from_offset=int(entry.name), length=size, wrote=size))
            continue
        checked = Checked("/".join((*folder, entry.name)), folder[0], entry.length)
        is_end = folder == (COMMIT_LOG,) and not entry.length and not entry.is_folder and entry == entries[-1]
        what = "4.9 does not start on it, 5.5.0 deletes it" if is_end else "no broker starts on it"
        text = f"expected a file of {size:,} bytes named by the offset of its first one, found {entry.length:,} bytes; {what}"
        start = int(entry.name) if folder == (COMMIT_LOG,) and is_mapped_file_name(entry.name) else None
        checked.find("MAPPED_FILE", text, physic_offset=start, physic_end=None if start is None else start + size)
        odd.append(checked)
    for file, after in pairwise(files):
        if file.end != after.from_offset:
            gap = Checked("/".join((*folder, after.name)), folder[0], 0)
            text = f"no files for offsets {file.end} to {after.from_offset}, before this one"
            if folder == (COMMIT_LOG,):
                gap.find("FILES_MISSING", text, physic_offset=file.end, physic_end=after.from_offset)
            else:
                gap.find("FILES_MISSING", text, queue_offset=file.end // CQ_STORE_UNIT_SIZE)
            odd.append(gap)
    return tuple(files), odd


def _filled(store: StoreFiles, files: Sequence[MappedFile], version: BrokerVersion) -> tuple[tuple[MappedFile, ...], int | None]:
    """The files up to the last one with records, and its greatest storeTimestamp. The broker makes files in advance."""
    for last in range(len(files) - 1, -1, -1):
        content = store.content(COMMIT_LOG, files[last].name)
        end, newest = 0, None
        for part in walks(content, files[last].length, version=version):
            end = part.end
            if len(part.positions):
                newest = max(int(rc.store_timestamps(content, rc.locate(content, part.positions)).max()), newest or 0)
        if newest is not None:
            return (*files[:last], replace(files[last], wrote=end)), newest
    return tuple(replace(file, wrote=0) for file in files[:1]), None


def _rows(found: Checked) -> pa.RecordBatch:
    """A row for the file, a row for each finding, and a row for each queue that the file has messages or entries of."""
    count = len(found.findings)
    result = (f"{count} findings" if count > 1 else "1 finding") if count else found.result
    is_gap = count == 1 and found.findings[0].code == "FILES_MISSING"
    rows: list[dict[str, object]] = [] if is_gap else [{"row": "file", "text": result}]
    rows += map(_finding_row, found.findings)
    rows += [{"row": "queue", "topic": topic, "queueId": queue_id, "messages": n} for (topic, queue_id), n in found.queued.items()]
    shared = {"path": found.path, "kind": found.kind, "length": found.length}
    return pa.RecordBatch.from_pylist([shared | row for row in rows], schema=_ROWS)


def _finding_row(one: Finding) -> dict[str, object]:
    told: dict[str, object] = {"row": "finding", "code": one.code, "text": one.text, "messages": one.messages}
    return told | {"queueOffset": one.queue_offset, "physicOffset": one.physic_offset, "physicEnd": one.physic_end}


def _verified(rows: Work, parts: int) -> Verified:
    queues = rows.mapped(partial(_of_row, "queue", ("topic", "queueId", "messages")), "topic STRING, queueId INT, messages BIGINT")
    unqueued = queues.summed(["topic", "queueId"], "messages").mapped(_unqueued, FINDING_DDL)
    findings = rows.mapped(partial(_of_row, "finding", FINDING), FINDING_DDL).joined(unqueued)
    files = rows.mapped(partial(_of_row, "file", FILE), "path STRING, kind STRING, length BIGINT, text STRING")
    return Verified(files=files.ordered(parts, ["path"]), findings=findings.ordered(parts, BY_PLACE))


def _of_row(row: str, names: Sequence[str], batches: Batches) -> Batches:
    """The columns `names` of the rows of one kind, `row`: file, finding or queue."""
    return (batch.filter(pc.equal(batch["row"], row)).select([*names]) for batch in batches)


def _unqueued(sums: Batches) -> Batches:
    """Findings: queues whose entries are fewer or more than their messages in the commit log, from sums of messages less entries."""
    for batch in sums:
        found = []
        for row in batch.to_pylist():
            count = row["messages"]
            if not count:
                continue
            code, text = "CQ_MISSING", f"{counted(count, 'message')} of the commit log without an entry"
            if count < 0:
                code, text = "CQ_TWICE", f"{counted(-count, 'entry', 'entries')} for messages that have an entry already"
            path = f"{CONSUME_QUEUE}/{row['topic']}/{row['queueId']}"
            found.append({"code": code, "path": path, "text": text, "messages": abs(count)})
        yield pa.RecordBatch.from_pylist(found, schema=_FINDINGS)
