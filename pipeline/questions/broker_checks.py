"""The broker's part of an explained pull: the checks before the store, a captured pull by its id, and the code of the answer.

Broker source (4.9.3): PullMessageProcessor.processRequest; `pipeline.capture.pull_checks` runs the checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import functions as F

from pipeline.capture.pull_checks import GROUP_COLUMNS, TOPIC_COLUMNS, broker_config, check
from pipeline.capture.registrations import SUBSCRIBED
from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import capture_tables as ct
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings, PullSettings, nearest
from store_format.broker_version import BrokerVersion
from store_format.config.config_rows import TopicConfig
from store_format.remoting.headers import PullSysFlag
from udfs.broker.broker_rules import BrokerRules
from udfs.broker.pull_message_processor import SUGGEST
from udfs.broker.topic_config import TopicConfigManager
from udfs.broker.topic_validator import GROUP_MAX_LENGTH, is_valid_group
from udfs.filters.consumer_filter_manager import TAG, build, is_tag_type
from udfs.filters.sql92_rules import TEXT_OPERATORS
from udfs.pull.codes import BrokerRole, GetMessageStatus, ResponseCode
from udfs.pull.pull_result import response_code

# most captured pulls that the message names if an id is the end of several
_SEVERAL = 3
_REQUIRED = ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPull:
    """The pull to explain, with the fields of a request file.

    Attributes:
        at: time of the pull, ms; None for the whole store.
        recorded_max: end of the queue for the pull, whatever `at` is; None if it is not known.
        header: fields of a captured pull, as in pull_request; None for a pull that was not captured.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    max_msg_nums: int
    filter_type: str | None = None
    expression: str | None = None
    registered: bool = False
    at: int | None = None
    recorded_max: int | None = None
    header: Mapping[str, Any] | None = None

    def with_filter_type(self) -> ExplainedPull:
        """Return the pull with a filter type: SQL92 if it uses the registered filter, else TAG if it has an expression."""
        usual = "SQL92" if self.registered else None if self.expression is None else TAG
        return replace(self, filter_type=self.filter_type or usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChecks:
    """The outcome of the checks before the store.

    Attributes:
        refused: the code of a refusal; None if the broker asks the store.
        remark: the broker's remark on the refusal; None if there is none.
        notes: notes for the user.
    """

    refused: ResponseCode | None = None
    remark: str | None = None
    notes: tuple[str, ...] = ()


def captured_pull(broker: OpenedBroker, request_id: str, settings: BrokerSettings) -> ExplainedPull:
    """Return a captured pull of the broker, with the filter that its group had registered.

    Args:
        broker: the broker that got the pull.
        request_id: a requestId, or the end of one that no other has.
        settings: of the broker.

    Raises:
        LakeError: the lake has no captured pull with this requestId, or several, or the pull lacks a field without which the broker throws.
    """
    found = _ending_with(broker, request_id)
    row = next((one for one in found if len(found) == 1 or one["requestId"] == request_id), None)
    if row is None:
        of = f"of a captured pull of broker {broker.name!r}"
        if found:
            ids = ", ".join(sorted(one["requestId"] for one in found))
            raise LakeError(f"--request {request_id}: expected the requestId {of}, found the end of several; give one in full: {ids}")
        raise LakeError(
            f"--request {request_id}: expected the requestId {of}, or its end, found none; `pullsim pulls --lake {broker.lake.root}` "
            "shows them"
        )
    lacks = [name for name in _REQUIRED if row[name] is None]
    if lacks:
        raise LakeError(
            f"--request {request_id}: the captured pull has no {', '.join(lacks)}: the broker throws, and answers 1 SYSTEM_ERROR"
        )
    checked = _checked(broker, row, settings)
    own = PullSysFlag.SUBSCRIPTION & (row["sysFlag"] or 0)
    asked = (row["expressionType"], row["subscription"]) if own else (row["registeredExpressionType"], row["registeredSubString"])
    refused = checked.get("refusedCode") is not None
    processed = row["answerMicros"] if row["held"] and row["answerMicros"] is not None else row["arrivalMicros"]
    return ExplainedPull(
        group=row["consumerGroup"],
        topic=row["topic"],
        queue_id=row["queueId"],
        offset=row["queueOffset"],
        max_msg_nums=row["maxMsgNums"],
        filter_type=(asked[0] if asked[1] is not None else None) if refused else checked["filterType"],
        expression=asked[1] if refused else checked["expression"],
        at=processed // 1000,
        recorded_max=row["recordedMaxOffset"],
        header=row,
    )


def _ending_with(broker: OpenedBroker, request_id: str) -> list[dict[str, Any]]:
    """Return the captured pulls whose requestId ends with `request_id`, at most _SEVERAL."""
    if broker.lake.has_session:
        found = broker.table(ct.PULL_REQUEST).where(F.endswith("requestId", F.lit(request_id))).limit(_SEVERAL).collect()
        return [row.asDict() for row in found]
    ids = broker.rows_with(ct.PULL_REQUEST, {}, ["requestId"])["requestId"]
    few = ids.filter(pc.ends_with(ids, request_id)).slice(0, _SEVERAL).to_pylist()
    rows: list[dict[str, Any]] = broker.rows_with(ct.PULL_REQUEST, {"requestId": few}).to_pylist()
    return rows


def broker_checks(broker: OpenedBroker, pull: ExplainedPull, settings: BrokerSettings) -> BrokerChecks:
    """Return what the broker does with a pull before it asks the store."""
    checked = _checked(broker, pull.header or _header(pull), settings)
    code = checked.get("refusedCode")
    is_unknown = code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    notes = [
        *_of_group(broker, pull, settings.version, is_unknown=is_unknown),
        *_of_queue(broker, pull, enable_lmq=settings.value("enableLmq")),
    ]
    kind, expression = _asked_filter(pull)
    if not is_tag_type(kind):
        if not settings.value("enablePropertyFilter"):
            notes.append(f"enablePropertyFilter is false: the broker refuses filters of type {kind!r} with SYSTEM_ERROR")
        text_operators = TEXT_OPERATORS.of(settings.version).value
        if expression and build(pull.topic, pull.group, expression, kind, 0, 0, text_operators=text_operators) is None:
            notes.append(f"the filter does not compile: everything passes; expression {expression!r}")
    if checked.get("checkError"):
        notes.append("the hash codes in the heartbeat are not those of its tags")
    if code == ResponseCode.SUBSCRIPTION_NOT_EXIST:
        notes.append("at that moment no client of the group was known by a heartbeat, or none that subscribes to the topic")
    if code == ResponseCode.SUBSCRIPTION_NOT_LATEST and pull.header is not None:
        versions = f"{pull.header['registeredSubVersion']}, and the pull {pull.header['subVersion']}"
        notes.append(f"the group's last heartbeat had the subscription of version {versions}")
    remark = checked.get("remark")
    refused = None if code is None else ResponseCode(code)
    return BrokerChecks(refused=refused, remark=None if remark is None else remark.removesuffix(SUGGEST).rstrip(" ,"), notes=tuple(notes))


def _asked_filter(pull: ExplainedPull) -> tuple[str | None, str | None]:
    if pull.header is None:
        return pull.filter_type, pull.expression
    if PullSysFlag.SUBSCRIPTION & (pull.header["sysFlag"] or 0):
        return pull.header["expressionType"], pull.header["subscription"]
    return pull.header["registeredExpressionType"], pull.header["registeredSubString"]


def _checked(broker: OpenedBroker, header: Mapping[str, Any], settings: BrokerSettings) -> dict[str, Any]:
    topics = broker.rows(t.TOPIC_CONFIG, pc.field("topic") == header["topic"]).to_pylist()
    groups = broker.rows(t.SUBSCRIPTION_GROUP, pc.field("consumerGroup") == header["consumerGroup"]).to_pylist()
    known = {name: rows[0][name] if rows else None for rows, names in ((topics, TOPIC_COLUMNS), (groups, GROUP_COLUMNS)) for name in names}
    return check(broker_config(settings, broker.name), {**header, **known}, settings.version)


def _header(pull: ExplainedPull) -> dict[str, Any]:
    """Return the columns of pull_request for a pull that was not captured; its filter is in the pull, or registered for the group."""
    kind = pull.filter_type
    registered: dict[str, Any] = {
        "registration": SUBSCRIBED if pull.registered else None,
        "registeredSubString": pull.expression,
        "registeredExpressionType": kind,
        "registeredSubVersion": 0,
        "registeredClassFilterMode": False,
        "registeredCodeSet": [],
        "registeredFilterVersion": 0,
        "registeredMessageModel": "CLUSTERING",
    }
    return {
        "consumerGroup": pull.group,
        "topic": pull.topic,
        "queueId": pull.queue_id,
        "queueOffset": pull.offset,
        "maxMsgNums": pull.max_msg_nums,
        "sysFlag": 0 if pull.registered else int(PullSysFlag.SUBSCRIPTION),
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*" if kind is None else pull.expression,
        "subVersion": 0,
        "expressionType": kind,
        **registered,
    }


def _of_group(broker: OpenedBroker, pull: ExplainedPull, version: BrokerVersion, *, is_unknown: bool) -> Iterator[str]:
    known = {name for table in (t.SUBSCRIPTION_GROUP, t.CONSUMER_OFFSET) for name in broker.rows(table)["consumerGroup"].to_pylist()}
    if pull.group not in known and (near := nearest(pull.group, sorted(known))):
        answered = "" if is_unknown else ", and answers it like others"
        yield f"the store has no group {pull.group!r}{answered}; the nearest known: {', '.join(map(repr, near))}"
    if is_unknown and BrokerRules.of(version).groups_need_valid_names and not is_valid_group(pull.group):
        yield f"the broker creates only groups whose names have at most {GROUP_MAX_LENGTH} letters, digits and %-_|"


def _of_queue(broker: OpenedBroker, pull: ExplainedPull, *, enable_lmq: bool) -> list[str]:
    queues = broker.rows(t.QUEUE, pc.field("topic") == pull.topic)["queueId"].to_pylist()
    rows = broker.rows(t.TOPIC_CONFIG, pc.field("topic") == pull.topic).to_pylist()
    known = {row["topic"]: TopicConfig(topicName=row["topic"], readQueueNums=row["readQueueNums"]) for row in rows}
    topic = TopicConfigManager(topic_config_table=known, enable_lmq=enable_lmq).select_topic_config(pull.topic)
    notes = []
    if not queues:
        notes.append(f"the store has no queue of topic {pull.topic!r}: findConsumeQueue makes an empty one, from 0 to 0")
    elif pull.queue_id not in queues:
        notes.append(f"the store has no queue {pull.queue_id} of topic {pull.topic!r}: findConsumeQueue makes an empty one, from 0 to 0")
    if topic is None:
        notes.append("topics.json does not have the topic: PullMessageProcessor answers TOPIC_NOT_EXIST before it asks the store")
    elif not 0 <= pull.queue_id < topic.readQueueNums:
        notes.append(
            f"topics.json gives the topic {topic.readQueueNums} queues to read: PullMessageProcessor answers SYSTEM_ERROR before it "
            "asks the store"
        )
    return notes


def broker_code(answer: Mapping[str, Any], offset: int, settings: PullSettings) -> ResponseCode:
    """Return the code of the broker's answer to a pull of `offset`, from the store's answer, a row of ANSWER_SCHEMA.

    The code is SYSTEM_ERROR if the store answers null or throws.
    """
    if answer["error"] is not None:
        return ResponseCode[answer["error"]]
    if answer["status"] is None:
        return ResponseCode.SYSTEM_ERROR
    return response_code(GetMessageStatus[answer["status"]], offset, BrokerRole[settings.broker_role], settings.offset_check_in_slave)
