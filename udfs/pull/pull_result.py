"""The response code of a pull and the broker to pull from next, from the store's status.

Broker source (4.9.3): PullMessageProcessor.processRequest, the switch over GetMessageStatus and, in the switch over the
code that follows it, case PULL_OFFSET_MOVED.
Rule: the status alone decides, with two exceptions. A pull of an empty queue is PULL_NOT_FOUND at offset 0 (and may
wait), and PULL_OFFSET_MOVED at any other offset, including -1. A slave that does not check offsets turns PULL_OFFSET_MOVED into
PULL_RETRY_IMMEDIATELY.
Surprise: a slave with slaveReadEnable=false sets PULL_RETRY_IMMEDIATELY first, and the switch then overwrites it.
A store that answers null (not readable, shut down) has no status: the processor answers SYSTEM_ERROR.
Rule for suggestWhichBrokerId: the master (0) unless slaveReadEnable is set. Then the group's whichBrokerWhenConsumeSlowly if the store
suggests pulling from a slave, else the group's brokerId.
Surprise: a slave that leaves an offset uncorrected suggests the group's brokerId, whatever slaveReadEnable is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from udfs.pull.codes import BrokerRole, GetMessageStatus, ResponseCode
from udfs.pull.offset_correction import ROLE_KNOWN_SQL, SLAVE_KEEPS_OFFSET_SQL, slave_keeps_offset
from udfs.sql_definition import SqlFunction

MASTER_ID: Final = 0
_EMPTY_QUEUE: Final = (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE)
_CODES: Final = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,  # except at offset 0
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,  # except at offset 0
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


def response_code(status: GetMessageStatus, offset: int, broker_role: BrokerRole, offset_check_in_slave: bool) -> ResponseCode:
    """Return the response code for a pull of `offset` with the store's `status`, before any long polling."""
    if status in _EMPTY_QUEUE and offset == 0:
        return ResponseCode.PULL_NOT_FOUND
    code = _CODES[status]
    if code == ResponseCode.PULL_OFFSET_MOVED and slave_keeps_offset(broker_role, offset_check_in_slave):
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    return code


def is_offset_moved(status: GetMessageStatus, offset: int) -> bool:
    """Return whether a pull of `offset` with this status is PULL_OFFSET_MOVED on a broker that checks offsets."""
    return _CODES[status] == ResponseCode.PULL_OFFSET_MOVED and not (status in _EMPTY_QUEUE and offset == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """The settings that suggestWhichBrokerId depends on, under the broker's own names.

    Attributes:
        broker_id: brokerId of the consumer group.
        which_broker_when_consume_slowly: whichBrokerWhenConsumeSlowly of the consumer group.
    """

    broker_role: BrokerRole
    offset_check_in_slave: bool
    slave_read_enable: bool
    broker_id: int
    which_broker_when_consume_slowly: int


def suggest_which_broker_id(status: GetMessageStatus, offset: int, suggest_pulling_from_slave: bool, where: Suggestion) -> int:
    """Return the brokerId to pull from next, after a pull of `offset` with the store's `status`."""
    if is_offset_moved(status, offset) and slave_keeps_offset(where.broker_role, where.offset_check_in_slave):
        return where.broker_id
    if not where.slave_read_enable:
        return MASTER_ID
    return where.which_broker_when_consume_slowly if suggest_pulling_from_slave else where.broker_id


def _names(statuses: tuple[GetMessageStatus, ...]) -> str:
    return ", ".join(f"'{status.name}'" for status in statuses)


def _statuses_of(code: ResponseCode) -> str:
    return _names(tuple(status for status, given in _CODES.items() if given == code))


SQL_FUNCTIONS: Final = (
    SqlFunction(
        name="response_code",
        parameters="status STRING, offset BIGINT, brokerRole STRING, offsetCheckInSlave BOOLEAN",
        returns="INT",
        body=f"""CASE
  WHEN offset IS NULL OR NOT coalesce({ROLE_KNOWN_SQL}, FALSE) THEN NULL
  WHEN status IN ({_names(_EMPTY_QUEUE)}) AND offset = 0 THEN {ResponseCode.PULL_NOT_FOUND}
  WHEN status IN ({_statuses_of(ResponseCode.PULL_OFFSET_MOVED)})
    THEN IF({SLAVE_KEEPS_OFFSET_SQL}, {ResponseCode.PULL_RETRY_IMMEDIATELY}, {ResponseCode.PULL_OFFSET_MOVED})
  WHEN status IN ({_statuses_of(ResponseCode.SUCCESS)}) THEN {ResponseCode.SUCCESS}
  WHEN status IN ({_statuses_of(ResponseCode.PULL_NOT_FOUND)}) THEN {ResponseCode.PULL_NOT_FOUND}
  WHEN status IN ({_statuses_of(ResponseCode.PULL_RETRY_IMMEDIATELY)}) THEN {ResponseCode.PULL_RETRY_IMMEDIATELY}
END""",
        comment=("Response code of the answer to a pull with this status. NULL if an argument is NULL or if the status or role is unknown"),
    ),
    SqlFunction(
        name="suggest_which_broker_id",
        parameters=(
            "status STRING, offset BIGINT, suggestPullingFromSlave BOOLEAN, brokerRole STRING, offsetCheckInSlave BOOLEAN, "
            "slaveReadEnable BOOLEAN, brokerId BIGINT, whichBrokerWhenConsumeSlowly BIGINT"
        ),
        returns="BIGINT",
        body=f"""CASE
  WHEN status IS NULL OR offset IS NULL OR suggestPullingFromSlave IS NULL OR slaveReadEnable IS NULL
    OR NOT coalesce({ROLE_KNOWN_SQL}, FALSE) THEN NULL
  WHEN {SLAVE_KEEPS_OFFSET_SQL} AND status IN ({_statuses_of(ResponseCode.PULL_OFFSET_MOVED)})
    AND NOT (status IN ({_names(_EMPTY_QUEUE)}) AND offset = 0) THEN brokerId
  WHEN NOT slaveReadEnable THEN {MASTER_ID}
  ELSE IF(suggestPullingFromSlave, whichBrokerWhenConsumeSlowly, brokerId)
END""",
        comment=(
            "Id of the broker to pull from next: suggestWhichBrokerId of the answer. NULL if an argument is NULL or if the role is unknown"
        ),
    ),
)
