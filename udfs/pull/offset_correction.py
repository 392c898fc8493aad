"""Where an out-of-range pull is sent, and what the store calls it.

Broker source (4.9.3): DefaultMessageStore.getMessage (the tests before the scan) and nextOffsetCorrection.
Rule: the first test that holds decides: empty queue, below min, at max, above max; else the scan.
Surprises: a pull above max goes back to 0 where min is 0, else to max. "Empty" means never written: a queue whose
messages have all expired has min == max > 0. A slave that does not check offsets (offsetCheckInSlave=false) keeps every
offset that it is asked for; the status stays what it is.
"""

from __future__ import annotations

from typing import Final

from store_format.compiled import compiled
from udfs.pull.codes import BrokerRole, GetMessageStatus
from udfs.sql_definition import SqlFunction

SCAN: Final = -1  # no status yet: the offset is in the queue, and the scan of its entries decides

_NO_MESSAGE_IN_QUEUE: Final = int(GetMessageStatus.NO_MESSAGE_IN_QUEUE)
_OFFSET_TOO_SMALL: Final = int(GetMessageStatus.OFFSET_TOO_SMALL)
_OFFSET_OVERFLOW_ONE: Final = int(GetMessageStatus.OFFSET_OVERFLOW_ONE)
_OFFSET_OVERFLOW_BADLY: Final = int(GetMessageStatus.OFFSET_OVERFLOW_BADLY)


@compiled
def pull_status(offset: int, min_offset: int, max_offset: int) -> int:
    """The GetMessageStatus of a pull that needs no scan, else SCAN.

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

SQL_FUNCTIONS: Final = (
    SqlFunction(
        name="pull_status",
        parameters="offset BIGINT, minOffset BIGINT, maxOffset BIGINT",
        returns="STRING",
        body="""CASE
  WHEN offset IS NULL OR minOffset IS NULL OR maxOffset IS NULL THEN NULL
  WHEN maxOffset = 0 THEN 'NO_MESSAGE_IN_QUEUE'
  WHEN offset < minOffset THEN 'OFFSET_TOO_SMALL'
  WHEN offset = maxOffset THEN 'OFFSET_OVERFLOW_ONE'
  WHEN offset > maxOffset THEN 'OFFSET_OVERFLOW_BADLY'
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
  WHEN maxOffset <> 0 AND offset >= minOffset AND offset < maxOffset THEN NULL
  WHEN {SLAVE_KEEPS_OFFSET_SQL} THEN offset
  WHEN maxOffset = 0 THEN 0
  WHEN offset < minOffset THEN minOffset
  WHEN offset > maxOffset THEN IF(minOffset = 0, minOffset, maxOffset)
  ELSE offset
END""",
        comment="Next offset of a pull that needs no scan of the queue, NULL as pull_status is or for an unknown role",
    ),
)
