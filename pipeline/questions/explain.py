"""`pullsim explain`: explain one pull: the checks and the scan of DefaultMessageStore.getMessage, step by step.

The pull is answered as in a replay; `udfs.pull.pull_trace` records the steps of the kernel. Tags and keys of messages come from the log's
tables: a message whose tag is not wanted, but has a wanted hash code, is a hash collision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.questions.broker_checks import ExplainedPull, broker_checks, broker_code
from pipeline.replay.driver_replay import requests_after_entries_here
from pipeline.replay.entry_colocation import Row
from pipeline.replay.expression_filters import pulls_into_messages
from pipeline.replay.kernel_batches import (
    KERNEL_COLUMNS,
    Answering,
    KernelAnswers,
    PackedPart,
    answer_rows,
    parts_of,
    requests_with_entries,
)
from pipeline.replay.lmq import beyond_lmq_limit, has_lmq_limit
from pipeline.replay.message_texts import delivered, delivered_at
from pipeline.replay.replay import At, RequestProfile, requests_after_entries
from pipeline.requests.request_lines import REQUEST_ARROW
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings, PullSettings
from pipeline.tasks.local_rows import frame_of
from pipeline.tasks.work import NoSessionError
from store_format.layout import LMQ_PREFIX
from udfs.filters.consumer_filter_manager import TAG, build, compiled
from udfs.filters.tags import SubscriptionParseError, split_tags, tags_code
from udfs.pull import get_message as gm
from udfs.pull.codes import ResponseCode
from udfs.pull.pull_trace import Fate, PullTrace, trace_pull


def wanted_tags(pull: ExplainedPull) -> frozenset[str] | None:
    """Return the tags in the pull's filter; None if the filter has no tags or does not parse."""
    try:
        tags = split_tags(pull.expression) if pull.filter_type == TAG else None
    except SubscriptionParseError:
        tags = None
    return None if tags is None else frozenset(tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTexts:
    """Tags, keys and msgId of an entry's message, from the log's tables.

    `properties` has the properties that the pull's SQL92 filter reads, None for one that the message lacks; it is empty for other filters.
    """

    tags: str | None
    keys: str | None
    msg_id: str | None
    properties: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One answered pull.

    Attributes:
        answer: the answer, a row of ANSWER_SCHEMA.
        request: the request, a row of KERNEL_COLUMNS.
        block: the entries that the pull may scan.
        trace: steps of the kernel; None if the store is not asked, or answers null.
    """

    answer: Mapping[str, Any]
    request: NDArray[np.int64]
    block: gm.Block
    trace: PullTrace | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A pull, its answer, and the facts that explain it.

    Attributes:
        broker: name of the broker.
        pull: the pull.
        settings: of the broker.
        caps: limits of the scan.
        traced: the answer and its steps.
        messages: texts of the scanned entries' messages, by the entry's physicOffset and size.
        notes: what the broker would do before it asks the store.
        refused: code of the broker's answer if a check before the store fails; None if the broker asks the store.
        remark: the broker's remark on a refusal; None if there is none.
    """

    broker: str
    pull: ExplainedPull
    settings: PullSettings
    caps: NDArray[np.int64]
    traced: Traced
    messages: Mapping[tuple[int, int], MessageTexts]
    notes: tuple[str, ...]
    refused: ResponseCode | None = None
    remark: str | None = None

    @property
    def code(self) -> ResponseCode:
        """The code of the broker's answer, before any long polling."""
        return broker_code(self.traced.answer, self.pull.offset, self.settings) if self.refused is None else self.refused


def traced_pulls(answering: Answering, rows: Iterator[Row]) -> Iterator[Traced]:
    """Answer the packed requests of rows, as `answer_batches` does, one by one with the steps of the kernel."""
    for part in (part for packed in requests_with_entries(answering, rows) for part in parts_of(answering, packed)):
        for number in range(len(part.refused)):
            one = slice(number, number + 1)
            alone = replace(part, packed=replace(part.packed, matrix=part.packed.matrix[one]), refused=part.refused[one])
            yield _traced(answering, alone)


def _traced(answering: Answering, part: PackedPart) -> Traced:
    requests = np.ascontiguousarray(part.packed.matrix[:, KERNEL_COLUMNS])
    found = gm.get_message(requests, answering.caps, part.block, part.codes, answering.log)
    (answer,) = answer_rows(answering, [KernelAnswers.of(answering, part, slice(None), found)]).to_pylist()
    trace = None
    if answering.readable and not part.refused[0]:
        trace = trace_pull(requests[0], answering.caps, part.block, part.codes, answering.log)
    return Traced(answer=answer, request=requests[0], block=part.block, trace=trace)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRequest:
    """A pull as a request that can be answered.

    Attributes:
        pull: the pull, with the expression of its registered filter if it uses one.
        requests: the request, a row of request_lines.SCHEMA.
        at: which part of the store it sees.
        profile: of the request.
    """

    pull: ExplainedPull
    requests: pa.Table
    at: At
    profile: RequestProfile

    def frame(self, broker: OpenedBroker) -> DataFrame:
        """The request as a DataFrame."""
        return frame_of(broker.lake.spark, self.requests)


def one_request(broker: OpenedBroker, pull: ExplainedPull, settings: PullSettings) -> OneRequest:
    """Return a pull as a request.

    Raises:
        LakeError: the pull uses the group's registered filter and the group has none.
    """
    if pull.registered and pull.expression is None:
        pull = _with_registered_filter(broker, pull)
    row = {
        "seq": 1,
        "consumerGroup": pull.group,
        "topic": pull.topic,
        "queueId": pull.queue_id,
        "queueOffset": pull.offset,
        "maxMsgNums": pull.max_msg_nums,
        "filterType": pull.filter_type,
        "expression": pull.expression,
        "registered": pull.registered,
        "timestamp": pull.at,
        "recordedMaxOffset": pull.recorded_max,
    }
    requests = pa.Table.from_pylist([row], REQUEST_ARROW)
    return OneRequest(
        pull=pull,
        requests=requests,
        at="recorded-max" if pull.recorded_max is not None else "snapshot" if pull.at is None else "request-time",
        profile=RequestProfile(into_messages=pulls_into_messages(requests, settings)[0].as_py(), about=1),
    )


def explain(broker: OpenedBroker, pull: ExplainedPull, broker_settings: BrokerSettings) -> Explanation:
    """Answer one pull and explain the answer.

    Args:
        broker: the broker whose store answers.
        pull: the pull.
        broker_settings: settings of the broker.

    Raises:
        LakeError: the store was imported as found, or the pull uses the group's registered filter and the group has none.
    """
    settings = broker_settings.pull_settings()
    request = one_request(broker, pull, settings)
    checks = broker_checks(broker, request.pull, broker_settings)
    answering, rows = (_on_spark if broker.lake.has_session else _here)(broker, request, settings)
    (traced,) = traced_pulls(answering, iter(rows))
    if _is_beyond_lmq_limit(broker, request, settings):
        traced = replace(traced, trace=None, answer=dict.fromkeys(traced.answer))
    return Explanation(
        broker=broker.name,
        pull=request.pull,
        settings=settings,
        caps=answering.caps,
        traced=traced,
        messages=_messages(broker, request.pull, traced),
        notes=checks.notes,
        refused=checks.refused,
        remark=checks.remark,
    )


def _here(broker: OpenedBroker, request: OneRequest, settings: PullSettings) -> tuple[Answering, list[Row]]:
    """Return what the kernel needs besides the request, and the request packed with its entries; without Spark."""
    [(answering, rows)] = requests_after_entries_here(broker, request.requests, at=request.at, settings=settings, with_entries=True)
    return answering, list(rows)


def _on_spark(broker: OpenedBroker, request: OneRequest, settings: PullSettings) -> tuple[Answering, list[Row]]:
    """Return what the kernel needs besides the request, and the request packed with its entries; with Spark."""
    *_, (answering, frame) = requests_after_entries(
        broker, request.frame(broker), at=request.at, settings=settings, with_entries=True, profile=request.profile
    )
    return answering, frame.toArrow().to_pylist()


def _is_beyond_lmq_limit(broker: OpenedBroker, request: OneRequest, settings: PullSettings) -> bool:
    if not (has_lmq_limit(settings) and request.pull.topic.startswith(LMQ_PREFIX)):
        return False
    requests = request.frame(broker)
    null_answers = beyond_lmq_limit(broker, requests, settings)
    answered = requests.select("seq", "topic", F.lit(True).alias("isAnswered"))
    return null_answers is not None and not null_answers(answered).collect()[0]["isAnswered"]


def _with_registered_filter(broker: OpenedBroker, pull: ExplainedPull) -> ExplainedPull:
    of_group = (pc.field("topic") == pull.topic) & (pc.field("consumerGroup") == pull.group)
    row = next(iter(broker.rows(t.CONSUMER_FILTER, of_group).to_pylist()), None)
    if row is None:
        raise LakeError(
            f"consumerFilter.json: expected a filter of group {pull.group!r} for topic {pull.topic!r}, found none; give --expression"
        )
    return replace(pull, filter_type=row["expressionType"], expression=row["expression"])


def _messages(broker: OpenedBroker, pull: ExplainedPull, traced: Traced) -> dict[tuple[int, int], MessageTexts]:
    """The texts of the scanned entries' messages, by physicOffset and size of the entry."""
    if traced.trace is None or not traced.trace.steps:
        return {}
    at = np.array([step.position for step in traced.trace.steps if step.in_disk is not None], np.int64)
    offsets, sizes = traced.block.physic_offsets[at], traced.block.sizes[at]
    if not len(at):
        return {}
    wanted = {*zip(offsets.tolist(), sizes.tolist(), strict=True)}
    some = sorted({*offsets.tolist()})
    rows = _texts_on_spark(broker, offsets, sizes) if broker.lake.has_session else delivered_at(broker, some)
    found = _properties(broker, some, _names_in_filter(pull))
    texts = {
        (row["physicOffset"], row["size"]): MessageTexts(
            tags=row["tags"], keys=row["keys"], msg_id=row["msgId"], properties=found.get(row["physicOffset"], {})
        )
        for row in rows
    }
    return {entry: texts[entry] for entry in wanted & texts.keys()}


def _names_in_filter(pull: ExplainedPull) -> Sequence[str]:
    """The names of the properties that the pull's SQL92 filter looks at."""
    data = build(pull.topic, pull.group, pull.expression, pull.filter_type, 0, 0, text_operators=True)
    found = None if data is None else compiled(data, text_operators=True)
    return () if found is None else found.properties


def _properties(broker: OpenedBroker, offsets: list[int], names: Sequence[str]) -> dict[int, dict[str, str | None]]:
    """Return the properties `names` of each message, by its offset; None for a property that the message lacks."""
    if not names:
        return {}
    try:
        rows = broker.rows_with(t.COMMIT_LOG, {"physicOffset": offsets}, ["physicOffset", "properties"])
    except NoSessionError:  # the values only help to read the explanation
        return {}
    found = {row["physicOffset"]: dict(row["properties"] or ()) for row in rows.to_pylist()}
    return {offset: {name: properties.get(name) for name in names} for offset, properties in found.items()}


def _texts_on_spark(broker: OpenedBroker, offsets: NDArray[np.int64], sizes: NDArray[np.int32]) -> list[Row]:
    entries = frame_of(broker.lake.spark, pa.table({"physicOffset": offsets, "size": sizes})).distinct()
    log = delivered(broker).where(F.col("physicOffset").between(int(offsets.min()), int(offsets.max())))
    found = log.join(F.broadcast(entries), ["physicOffset", "size"]).select("physicOffset", "size", "tags", "keys", "msgId").collect()
    return [row.asDict() for row in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedEntry:
    """An entry that the scan reached.

    Attributes:
        queue_offset: of the entry.
        physic_offset: of the entry's message.
        size: of the entry's message.
        tags_code: of the entry.
        in_disk: whether the message is on disk; None if the scan did not check it.
        fate: what the scan did with the entry.
        message: texts of the message; None if the log does not have the message, or it was not read.
        client_drops: why the client drops the message that the broker delivered; empty if it does not.
    """

    queue_offset: int
    physic_offset: int
    size: int
    tags_code: int
    in_disk: bool | None
    fate: Fate
    message: MessageTexts | None
    client_drops: str


HASH_COLLISION = "hash collision"
OTHER_TAGS_CODE = "its tagsCode is not its tag's"


def entries_of(explanation: Explanation) -> list[ScannedEntry]:
    """The entries that the scan reached, in order."""
    traced, wanted = explanation.traced, wanted_tags(explanation.pull)
    codes = None if wanted is None else frozenset(map(tags_code, wanted))
    if traced.trace is None:
        return []
    block, found = traced.block, []
    for step in traced.trace.steps:
        physic_offset, size = int(block.physic_offsets[step.position]), int(block.sizes[step.position])
        message = explanation.messages.get((physic_offset, size)) if step.in_disk is not None else None
        drops = ""
        if wanted and codes and step.fate is Fate.TAKEN and message is not None and message.tags not in wanted:
            drops = HASH_COLLISION if tags_code(message.tags) in codes else OTHER_TAGS_CODE
        found.append(
            ScannedEntry(
                queue_offset=block.first_offset + step.position,
                physic_offset=physic_offset,
                size=size,
                tags_code=int(block.tags_codes[step.position]),
                in_disk=step.in_disk,
                fate=step.fate,
                message=message,
                client_drops=drops,
            )
        )
    return found
