"""The status and the next offset of a pull whose offset lies outside of its queue.

Broker source (4.9.3): DefaultMessageStore.getMessage (the tests before the scan) and nextOffsetCorrection.
Rule: the first test that holds decides: empty queue, below min, at max, above max; else the scan.
Surprises: a pull above max goes back to 0 where min is 0, else to max. "Empty" means never written: a queue whose
messages have all expired has min == max > 0. A slave that does not check offsets (offsetCheckInSlave=false) keeps every
offset that it is asked for; the status stays what it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from store_format.compiled import compiled
from udfs.pull.codes import BrokerRole, GetMessageStatus
from udfs.sql_definition import SqlFunction

SCAN: Final = -1  # no status yet: the offset is in the queue, and the scan of its entries decides


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCheck:
    """A test of getMessage before its scan.

    Attributes:
        status: what the store answers where the test holds.
        condition: the test in SQL, over offset, minOffset and maxOffset.
        meaning: what the test asks, in words.
        corrected_sql: nextBeginOffset where the test holds and offsets are corrected, in SQL over the same names.
        corrected: the same in words.
    """

    status: GetMessageStatus
    condition: str
    meaning: str
    corrected_sql: str
    corrected: str


# in the order in which the store makes them; `pull_status` and `correct_offset` are their compiled form
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
_NO_MESSAGE_IN_QUEUE, _OFFSET_TOO_SMALL, _OFFSET_OVERFLOW_ONE, _OFFSET_OVERFLOW_BADLY = (int(check.status) for check in OFFSET_CHECKS)


@compiled
def pull_status(offset: int, min_offset: int, max_offset: int) -> int:
    """The GetMessageStatus of a pull that needs no scan, else SCAN: the first of OFFSET_CHECKS that holds.

    Args:
        offset: the queue offset asked for.
        min_offset: of the queue, as the store reports it.
        max_offset: of the queue; one past its last entry.
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
    """The offset that a correction from old to new comes to (also that of OFFSET_FOUND_NULL, to the next file)."""
    return old_offset if slave_keeps_offset else new_offset


@compiled
def correct_offset(offset: int, min_offset: int, max_offset: int, slave_keeps_offset: bool) -> int:
    """nextBeginOffset of a pull that needs no scan; the offset itself, where a scan starts, for one that does.

    Args:
        offset: the queue offset asked for.
        min_offset: of the queue, as the store reports it.
        max_offset: of the queue; one past its last entry.
        slave_keeps_offset: as the function of that name gives it.
    """
    status = pull_status(offset, min_offset, max_offset)
    new_offset = offset
    if status == _NO_MESSAGE_IN_QUEUE:
        new_offset = 0
    elif status == _OFFSET_TOO_SMALL:
        new_offset = min_offset
    elif status == _OFFSET_OVERFLOW_BADLY:
        new_offset = min_offset if min_offset == 0 else max_offset
    return next_offset_correction(offset, new_offset, slave_keeps_offset)


def slave_keeps_offset(broker_role: BrokerRole, offset_check_in_slave: bool) -> bool:
    """Whether this broker leaves offsets as they were asked for instead of correcting them."""
    return broker_role == BrokerRole.SLAVE and not offset_check_in_slave


# Conditions over the parameters brokerRole and offsetCheckInSlave. A role that no broker has (they are in capitals)
# makes a function NULL, as a NULL argument does.
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
        comment="Status of a pull that needs no scan of the queue, NULL where the scan decides or an argument is NULL",
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
        comment="Next offset of a pull that needs no scan of the queue, NULL as pull_status is or for an unknown role",
    ),
)
