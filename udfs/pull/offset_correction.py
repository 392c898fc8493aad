"""The status and the next offset of a pull whose offset lies outside its queue's bounds.

Broker source (4.9.3): DefaultMessageStore.getMessage (the tests before the scan) and nextOffsetCorrection.
Rule: the first test that holds decides: empty queue, below min, at max, above max. If none holds, the scan decides.
Surprises: a pull above max goes back to 0 if min is 0, else to max. "Empty" means never written: a queue whose
messages have all expired has min == max > 0. A slave that does not check offsets (offsetCheckInSlave=false) returns the
request's offset as the next offset; the status is the same.
Later versions go to max in any case: udfs/pull/pull_rules.py. The SQL form is that of 4.9.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from store_format.compiled import compiled
from udfs.pull.codes import BrokerRole, GetMessageStatus
from udfs.sql_definition import SqlFunction

SCAN: Final = -1  # no status yet: the offset is in the queue, and the scan of entries decides


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCheck:
    """A test of getMessage before its scan.

    Attributes:
        status: status of the store's answer if the test holds.
        condition: the test in SQL, over offset, minOffset and maxOffset.
        meaning: the test in words.
        corrected_sql: nextBeginOffset if the test holds and the broker corrects offsets, in SQL over the same names.
        corrected: nextBeginOffset in words.
    """

    status: GetMessageStatus
    condition: str
    meaning: str
    corrected_sql: str
    corrected: str


# In the order of the store's tests. `pull_status` and `correct_offset` are the compiled form.
OFFSET_CHECKS: Final = (
    OffsetCheck(
        status=GetMessageStatus.NO_MESSAGE_IN_QUEUE,
        condition="maxOffset = 0",
        meaning="nothing was ever written to the queue",
        corrected_sql="0",
        corrected="0",
    ),
    OffsetCheck(
        status=GetMessageStatus.OFFSET_TOO_SMALL,
        condition="offset < minOffset",
        meaning="what was asked for is deleted",
        corrected_sql="minOffset",
        corrected="minOffset",
    ),
    OffsetCheck(
        status=GetMessageStatus.OFFSET_OVERFLOW_ONE,
        condition="offset = maxOffset",
        meaning="the consumer has all there is",
        corrected_sql="offset",
        corrected="the same",
    ),
    OffsetCheck(
        status=GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        condition="offset > maxOffset",
        meaning="no such message was written yet",
        corrected_sql="IF(minOffset = 0, minOffset, maxOffset)",
        corrected="minOffset where that is 0, else maxOffset",
    ),
)
# the statuses of pulls that need no scan
DECIDED_BY_BOUNDS: Final = tuple(int(check.status) for check in OFFSET_CHECKS)
_NO_MESSAGE_IN_QUEUE, _OFFSET_TOO_SMALL, _OFFSET_OVERFLOW_ONE, _OFFSET_OVERFLOW_BADLY = DECIDED_BY_BOUNDS


@compiled
def pull_status(offset: int, min_offset: int, max_offset: int) -> int:
    """Return the status of the first of OFFSET_CHECKS that holds, SCAN if none holds.

    Args:
        offset: the request's queue offset.
        min_offset: the queue's minOffset, as the store reports it.
        max_offset: the queue's maxOffset: one past its last entry.
    """
    if max_offset == 0:
        return _NO_MESSAGE_IN_QUEUE
    if offset < min_offset:
        return _OFFSET_TOO_SMALL
    if offset == max_offset:
        return _OFFSET_OVERFLOW_ONE
    if offset > max_offset:
        return _OFFSET_OVERFLOW_BADLY
    return SCAN


@compiled
def next_offset_correction(old_offset: int, new_offset: int, slave_keeps_offset: bool) -> int:
    """Return the offset after a correction: `old_offset` if `slave_keeps_offset`, else `new_offset`. OFFSET_FOUND_NULL uses it too."""
    return old_offset if slave_keeps_offset else new_offset


@compiled
def correct_offset(
    offset: int, min_offset: int, max_offset: int, slave_keeps_offset: bool, overflow_badly_goes_to_max: bool = False
) -> int:
    """Return nextBeginOffset of a pull that needs no scan; `offset` itself if the pull needs one.

    Args:
        offset: the request's queue offset.
        min_offset: the queue's minOffset, as the store reports it.
        max_offset: the queue's maxOffset: one past its last entry.
        slave_keeps_offset: result of the function `slave_keeps_offset`.
        overflow_badly_goes_to_max: the rule of that name in `PullRules`.
    """
    status = pull_status(offset, min_offset, max_offset)
    new_offset = offset
    if status == _NO_MESSAGE_IN_QUEUE:
        new_offset = 0
    elif status == _OFFSET_TOO_SMALL:
        new_offset = min_offset
    elif status == _OFFSET_OVERFLOW_BADLY:
        new_offset = min_offset if min_offset == 0 and not overflow_badly_goes_to_max else max_offset
    return next_offset_correction(offset, new_offset, slave_keeps_offset)


def slave_keeps_offset(broker_role: BrokerRole, offset_check_in_slave: bool) -> bool:
    """Return whether a broker leaves the offsets of pulls as they are: a slave with offsetCheckInSlave=false."""
    return broker_role == BrokerRole.SLAVE and not offset_check_in_slave


# Conditions over the parameters brokerRole and offsetCheckInSlave. Role names are in capitals. A SQL function returns NULL
# for an unknown role, as for a NULL argument.
ROLE_KNOWN_SQL: Final = "brokerRole IN ({}) AND offsetCheckInSlave IS NOT NULL".format(", ".join(f"'{role.name}'" for role in BrokerRole))
SLAVE_KEEPS_OFFSET_SQL: Final = "brokerRole = 'SLAVE' AND NOT offsetCheckInSlave"
_STATUS_SQL: Final = "\n  ".join(f"WHEN {check.condition} THEN '{check.status.name}'" for check in OFFSET_CHECKS)
_OUTSIDE_SQL: Final = " OR ".join(check.condition for check in OFFSET_CHECKS)
_CORRECTED_SQL: Final = "\n  ".join(f"WHEN {check.condition} THEN {check.corrected_sql}" for check in OFFSET_CHECKS)

SQL_FUNCTIONS: Final = (
    SqlFunction(
        name="pull_status",
        parameters="offset BIGINT, minOffset BIGINT, maxOffset BIGINT",
        returns="STRING",
        body=f"""CASE
  WHEN offset IS NULL OR minOffset IS NULL OR maxOffset IS NULL THEN NULL
  {_STATUS_SQL}
END""",
        comment=(
            "Status of a pull whose offset lies outside the queue, so that no scan is needed. NULL if a scan decides or "
            "if an argument is NULL"
        ),
    ),
    SqlFunction(
        name="correct_offset",
        parameters="offset BIGINT, minOffset BIGINT, maxOffset BIGINT, brokerRole STRING, offsetCheckInSlave BOOLEAN",
        returns="BIGINT",
        body=f"""CASE
  WHEN offset IS NULL OR minOffset IS NULL OR maxOffset IS NULL THEN NULL
  WHEN NOT coalesce({ROLE_KNOWN_SQL}, FALSE) THEN NULL
  WHEN NOT ({_OUTSIDE_SQL}) THEN NULL
  WHEN {SLAVE_KEEPS_OFFSET_SQL} THEN offset
  {_CORRECTED_SQL}
END""",
        comment="Next offset of a pull whose offset lies outside the queue. NULL if pull_status gives NULL or if the role is unknown",
    ),
)
