"""The causes of findings: each finding is put under the finding that it follows from. Also computes what the broker's start would do.

Rule: a finding about entries follows from a finding about a stretch of the commit log if its first entry points into that stretch. The
table in finding_codes says which findings of its queue or store it follows from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException

from pipeline.files.store_files import StoreFiles
from pipeline.importing.load_store import load_store, with_extension
from pipeline.schema.arrow_types import arrow_of
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.work import Batches, Tasks, Work
from pipeline.verify.finding_codes import CODES, SEVERITIES, FindingCode, root_of
from pipeline.verify.verify_store import FINDING, FINDING_DDL
from store_format.config.config_files import offsets_file
from store_format.errors import StoreError, quoted_error
from store_format.store_paths import CONSUME_QUEUE, CONSUME_QUEUE_EXT

# greatest number of stretches of the commit log that entries are compared with; with more, the distinction is of no use
_STRETCHES_MAX = 1000
_STRETCH = "code STRING, physicOffset BIGINT, physicEnd BIGINT"
_CAUSED_DDL = f"{FINDING_DDL}, cause STRING"
_GROUP = "cause STRING, code STRING, findings BIGINT, messages BIGINT, path STRING, text STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The findings of one code that have one cause.

    Attributes:
        cause: code of the cause.
        code: code of the findings.
        findings: number of the findings.
        messages: number of messages or entries that they concern; None if no finding says.
        path: path of the first finding.
        text: text of the first finding.
    """

    cause: str
    code: str
    findings: int
    messages: int | None
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause: what is known of its code, its own findings, and the groups of findings that follow from it."""

    known: FindingCode
    own: Group
    folded: Sequence[Group]

    def lines(self) -> list[str]:
        """The lines for people: the first finding, what follows from it, what the broker does, what to do."""
        more = "" if self.own.findings == 1 else f" (the first of {counted(self.own.findings, 'finding')})"
        concerned = "" if self.own.messages is None else f"{self.own.messages:,} messages or entries. "
        told = [
            f"{self.known.severity.name:6} {self.known.code} {self.own.path}: {self.own.text}{more}",
            f"       {concerned}{self.known.what}",
        ]
        for group in self.folded:
            count = f"{group.findings:,} {'finding' if group.findings == 1 else 'findings'}"
            concerned = "" if group.messages is None else f", {group.messages:,} messages or entries"
            told.append(f"       follows from it: {group.code}: {count}{concerned}; the first {group.path}")
        return [*told, f"       broker: {self.known.broker}", f"       do: {self.known.do}"]

    def in_json(self) -> dict[str, Any]:
        """The cause as an object."""
        known, own = self.known, self.own
        told = {"code": known.code, "severity": known.severity.name, "what": known.what, "broker": known.broker, "do": known.do}
        return (
            told
            | {"findings": own.findings, "messages": own.messages, "first": f"{own.path}: {own.text}"}
            | {"folded": [{"code": one.code, "findings": one.findings, "messages": one.messages, "first": one.path} for one in self.folded]}
        )


def with_causes(findings: Work) -> Work:
    """Return findings with the column `cause` added: the code of the root cause of each finding, its own code if it follows from none."""
    stretches = findings.mapped(_stretches, _STRETCH).rows(_STRETCHES_MAX)
    codes = [row["code"] for row in findings.select(["code"]).distinct(["code"]).rows()]
    together = findings.mapped(_with_queue, f"{FINDING_DDL}, queue STRING").with_set("queue", "code", "codes")
    return together.mapped(partial(_with_causes, [tuple(row.values()) for row in stretches], codes), _CAUSED_DDL)


def _stretches(findings: Batches) -> Batches:
    """The stretches of the commit log that findings name."""
    return (batch.filter(pc.is_valid(batch["physicEnd"])).select(["code", "physicOffset", "physicEnd"]) for batch in findings)


def _with_queue(findings: Batches) -> Batches:
    """Findings with the queue that each is about: topic/queueId; NULL for other files."""
    for batch in findings:
        parts = [path.split("/") for path in batch["path"].to_pylist()]
        queues = ["/".join(part[1:3]) if part[0] in {CONSUME_QUEUE, CONSUME_QUEUE_EXT} else None for part in parts]
        yield batch.append_column("queue", pa.array(queues, pa.string()))


def _with_causes(stretches: Sequence[tuple[str, int, int]], codes: Sequence[str], batches: Batches) -> Batches:
    for batch in batches:
        rows = batch.select(["code", "queue", "codes", "physicOffset"]).to_pylist()
        causes = [_cause(row, stretches, codes) for row in rows]
        yield batch.select([*FINDING]).append_column("cause", pa.array(causes, pa.string()))


def _cause(row: dict[str, Any], stretches: Sequence[tuple[str, int, int]], codes: Sequence[str]) -> str:
    at = row["physicOffset"]
    of_log = [] if at is None else [code for code, start, end in stretches if start <= at < end]
    return root_of(row["code"], of_log=of_log, of_queue=() if row["queue"] is None else row["codes"], of_store=codes)


def causes_of(caused: Work) -> list[Cause]:
    """Return the causes of findings with the column `cause`, the worst first; there are at most as many as codes."""
    groups = _grouped(Group(**row) for row in caused.mapped(_groups, _GROUP).rows())
    # if all findings of a code follow from others, so do the findings that follow from them
    parents = {group.code: group.cause for group in groups if group.code != group.cause}
    owned = {group.code for group in groups if group.code == group.cause}
    found = []
    for code in sorted(owned):
        own = next(group for group in groups if group.code == group.cause == code)
        others = [group for group in groups if group is not own and _owner(group.cause, parents, owned) == code]
        found.append(Cause(CODES[code], own, list(_joined(others))))
    return sorted(found, key=lambda cause: (SEVERITIES.index(cause.known.severity), -(cause.own.messages or 0), cause.known.code))


def _groups(caused: Batches) -> Batches:
    """The groups of the findings of a task."""
    rows = (row for batch in caused for row in batch.to_pylist())
    found = _grouped(Group(**{name: row[name] for name in ("cause", "code", "messages", "path", "text")}, findings=1) for row in rows)
    yield pa.RecordBatch.from_pylist([asdict(group) for group in found], schema=arrow_of(_GROUP))


def _grouped(groups: Iterable[Group]) -> list[Group]:
    """One group for each cause and code, sorted by them."""
    found: dict[tuple[str, str], Group] = {}
    for group in groups:
        key = group.cause, group.code
        found[key] = _sum(found[key], group) if key in found else group
    return [group for _, group in sorted(found.items())]


def _sum(one: Group, other: Group) -> Group:
    """Join two groups of one code."""
    path, text = min((one.path, one.text), (other.path, other.text))
    known = [messages for messages in (one.messages, other.messages) if messages is not None]
    return replace(one, findings=one.findings + other.findings, messages=sum(known) if known else None, path=path, text=text)


def _joined(groups: Sequence[Group]) -> Iterator[Group]:
    """Join the groups of each code: findings that follow from the cause through another finding come in a group of their own."""
    for _, same in groupby(sorted(groups, key=attrgetter("code", "path")), attrgetter("code")):
        yield reduce(_sum, same)


def _owner(cause: str, parents: Mapping[str, str], owned: Collection[str]) -> str:
    while cause not in owned:
        cause = parents[cause]
    return cause


@dataclass(frozen=True, slots=True)
class StartChanges:
    """What the broker's load and start would do to a store: a sentence each, and how many messages would be cut off the log."""

    notes: tuple[str, ...]
    lost: int = 0


def what_start_does(tasks: Tasks, path: str, settings: BrokerSettings) -> StartChanges:
    """Return what the broker's load and start would do to the store; no notes if they leave it as it is."""
    store = StoreFiles(path)
    try:
        loaded = load_store(tasks, store, "verified", with_extension(settings, store))
    except StoreError as error:
        return StartChanges((f"the broker would not start: {error}",))
    except PySparkException as error:  # a task found out
        if (text := quoted_error(str(error))) is None:
            raise
        return StartChanges((f"the broker would not start: {text}",))
    return StartChanges((*loaded.notes, *_without_offsets(store, settings)), loaded.lost)


def _without_offsets(store: StoreFiles, settings: BrokerSettings) -> Iterator[str]:
    """Yield a note if the broker would know no offset of its groups: ConfigManager.load finds neither the file nor its .bak."""
    name, _ = offsets_file(enable_lmq=settings.value("enableLmq"))
    if {name, f"{name}.bak"}.isdisjoint(entry.name for entry in store.folder("config")):
        yield f"{store.path_of('config', name)} is not there: the broker would start without the offsets of its groups"


def in_json(row: Any) -> dict[str, Any]:
    """Return a finding with its cause as an object."""
    told = {name: row[name] for name in (*FINDING, "cause") if row[name] is not None}
    return {"severity": CODES[row["code"]].severity.name, **told}
