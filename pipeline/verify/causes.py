"""The causes of findings: each finding is put under the one that it follows from, and what the broker's start would do is computed.

Rule: a finding about entries follows from one about the commit log where its first entry points into the stretch that the other names, and
from others of its queue or store as finding_codes says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipeline.files.store_files import StoreFiles
from pipeline.importing.load_store import load_store, with_extension
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.work import SparkTasks
from pipeline.verify.finding_codes import CODES, SEVERITIES, FindingCode, root_of
from pipeline.verify.verify_store import FINDING
from store_format.errors import StoreError, quoted_error
from store_format.store_paths import CONSUME_QUEUE, CONSUME_QUEUE_EXT

# stretches of the commit log that entries are compared with; a log with more has no use for the distinction
_STRETCHES_MAX = 1000
_CAUSED = "cause STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The findings of one code that have one cause.

    Attributes:
        cause: code of the cause.
        code: code of the findings.
        findings: their number.
        messages: messages or entries that they concern; None if none says.
        path: path of the first.
        text: its text.
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
        """What people are told: the first finding, what follows from it, what the broker does, what to do."""
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


def with_causes(findings: DataFrame) -> DataFrame:
    """Return findings with a column more, `cause`: the code of the finding that each follows from in the end, its own if from none."""
    stretches = findings.where("physicEnd IS NOT NULL").select("code", "physicOffset", "physicEnd").limit(_STRETCHES_MAX).collect()
    codes = [row["code"] for row in findings.select("code").distinct().collect()]
    parts = F.split("path", "/")
    of_queue = F.when(parts[0].isin(CONSUME_QUEUE, CONSUME_QUEUE_EXT), F.concat_ws("/", parts[1], parts[2]))
    queued = findings.withColumn("queue", of_queue)
    together = queued.withColumn("codes", F.collect_set("code").over(Window.partitionBy("queue")))
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in findings.schema)
    return together.mapInArrow(partial(_with_causes, [tuple(row) for row in stretches], codes), f"{schema}, {_CAUSED}")


def _with_causes(
    stretches: Sequence[tuple[str, int, int]], codes: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch.select(["code", "queue", "codes", "physicOffset"]).to_pylist()
        causes = [_cause(row, stretches, codes) for row in rows]
        kept = batch.drop_columns(["queue", "codes"])
        yield pa.RecordBatch.from_arrays([*kept.columns, pa.array(causes, pa.string())], [*kept.schema.names, "cause"])


def _cause(row: dict[str, Any], stretches: Sequence[tuple[str, int, int]], codes: Sequence[str]) -> str:
    at = row["physicOffset"]
    of_log = [] if at is None else [code for code, start, end in stretches if start <= at < end]
    return root_of(row["code"], of_log=of_log, of_queue=() if row["queue"] is None else row["codes"], of_store=codes)


def causes_of(caused: DataFrame) -> list[Cause]:
    """Return the causes of findings with the column `cause`, the worst first; there are at most as many as codes."""
    first = F.min_by(F.struct("path", "text"), F.struct("path", "text"))
    rows = caused.groupBy("cause", "code").agg(F.count("*").alias("findings"), F.sum("messages").alias("messages"), first.alias("first"))
    groups = [
        Group(
            cause=row["cause"],
            code=row["code"],
            findings=row["findings"],
            messages=row["messages"],
            path=row["first"]["path"],
            text=row["first"]["text"],
        )
        for row in rows.orderBy("cause", "code").collect()
    ]
    # all findings of a code may follow from others, and then so does what follows from them
    parents = {group.code: group.cause for group in groups if group.code != group.cause}
    owned = {group.code for group in groups if group.code == group.cause}
    found = []
    for code in sorted(owned):
        own = next(group for group in groups if group.code == group.cause == code)
        others = [group for group in groups if group is not own and _owner(group.cause, parents, owned) == code]
        found.append(Cause(CODES[code], own, list(_joined(others))))
    return sorted(found, key=lambda cause: (SEVERITIES.index(cause.known.severity), -(cause.own.messages or 0), cause.known.code))


def _joined(groups: Sequence[Group]) -> Iterator[Group]:
    """One group for each code; what follows from a cause over another finding is in a group of its own before."""
    for _, same in groupby(sorted(groups, key=attrgetter("code", "path")), attrgetter("code")):
        first, *others = same
        known = [one.messages for one in (first, *others) if one.messages is not None]
        findings = first.findings + sum(one.findings for one in others)
        yield replace(first, findings=findings, messages=sum(known) if known else None)


def _owner(cause: str, parents: Mapping[str, str], owned: Collection[str]) -> str:
    while cause not in owned:
        cause = parents[cause]
    return cause


def what_start_does(spark: SparkSession, path: str, settings: BrokerSettings) -> tuple[str, ...]:
    """Return what the broker's load and start would do to the store, a sentence each; none where they leave it as it is."""
    store = StoreFiles(path)
    try:
        return load_store(SparkTasks(spark), store, "verified", with_extension(settings, store)).notes
    except StoreError as error:
        return (f"the broker would not start: {error}",)
    except PySparkException as error:  # a task found out
        if (text := quoted_error(str(error))) is None:
            raise
        return (f"the broker would not start: {text}",)


def in_json(row: Any) -> dict[str, Any]:
    """Return a finding with its cause as an object."""
    told = {name: row[name] for name in (*FINDING, "cause") if row[name] is not None}
    return {"severity": CODES[row["code"]].severity.name, **told}
