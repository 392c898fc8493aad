"""The codes of findings: how bad each is, what it means, what it follows from, what the broker does about it, and what to do.

Broker source (4.9.3): MappedFileQueue.load, CommitLog.recoverNormally and recoverAbnormally, ConsumeQueue.recover,
ConsumeQueue.truncateDirtyLogicFiles, DefaultMessageStore.start (reput), ConfigManager.load, IndexService.load.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Severity(Enum):
    """How bad a finding is; the first is the worst."""

    STOPS = "STOPS: the broker does not load the store"
    LOST = "LOST: messages are gone, or no consumer gets them"
    WRONG = "WRONG: the broker answers something that its files do not warrant"
    MENDED = "MENDED: the broker's next start or write puts it right"
    NOTE = "NOTE: nothing follows for the broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCode:
    """The description of the findings of a code.

    Attributes:
        code: the code.
        severity: how bad they are.
        what: what they mean.
        broker: what the broker does about them.
        do: what to do.
        from_log: whether they follow from a finding about the stretch of the commit log that they point to.
        from_queue: codes of findings of the same queue that they follow from, the likeliest first.
        from_store: codes of findings anywhere that they follow from.
    """

    code: str
    severity: Severity
    what: str
    broker: str
    do: str
    from_log: bool = False
    from_queue: tuple[str, ...] = ()
    from_store: tuple[str, ...] = ()


_COPY: Final = "Copy the store again from the stopped broker; if the file is the same there, take it from a replica or a backup."
_IMPORT: Final = "Import the store again."
REBUILD: Final = (
    "Stop the broker, move the whole folder consumequeue away, and consumequeue_ext if there is one, and start the broker: it "
    "dispatches all messages of the commit log again. Do not move the folder of one queue alone: that queue is lost. Mend findings "
    "about the commit log first: without queues, 5.5.0 deletes the log from the first bad record on, and 4.9.3 skips the rest of that "
    "file, or never ends its start if a file is missing. Try it on a copy: pullsim recover."
)
_QUEUE_DAMAGE: Final = ("FILES_MISSING", "MAPPED_FILE", "CQ_NOT_FULL", "CQ_NO_RECORD", "CQ_BEYOND_LOG")
_INDEX: Final = "Stop the broker and delete the index file: only look-ups by key before the restart need it."

_ALL: Final = (
    FindingCode(
        code="MAPPED_FILE",
        severity=Severity.STOPS,
        what="A file of the commit log or of a queue has another length or name than its neighbours.",
        broker="Load fails: 'length not matched message store config value'. A file whose name is no offset makes load throw.",
        do=(
            "If the sizes that pullsim uses are not the broker's, give the right ones with --properties or --set; else "
            "copy the file again, or move it away."
        ),
    ),
    FindingCode(
        code="QUEUE_NAME",
        severity=Severity.STOPS,
        what="A folder below a topic of consumequeue has a name that is no queue number as the broker writes it.",
        broker="A name that is no number makes load throw NumberFormatException.",
        do="Move the folder away.",
    ),
    FindingCode(
        code="FILES_MISSING",
        severity=Severity.LOST,
        what="A file is missing between two files of the commit log or of a queue.",
        broker="Load does not notice it. Pulls skip the offsets of the missing file: OFFSET_FOUND_NULL or MESSAGE_WAS_REMOVING.",
        do=_COPY,
    ),
    FindingCode(
        code="LOG_BAD_RECORD",
        severity=Severity.LOST,
        what="A record of the commit log has lengths that do not add up, so that nothing says where the next record begins.",
        broker="In the last three files, or after a crash, load cuts the log there. In older files nobody notices.",
        do=_COPY,
    ),
    FindingCode(
        code="LOG_NO_RECORD",
        severity=Severity.LOST,
        what="In a file of the commit log that is not the last one, the records end before the file does.",
        broker="In the last three files, or after a crash, load cuts the log there, or goes on with the next file if zeros follow.",
        do=_COPY,
    ),
    FindingCode(
        code="LOG_BAD_CRC",
        severity=Severity.WRONG,
        what="The body of a message has changed since it was stored: its CRC-32 differs from the stored one.",
        broker="Consumers get the body as it is. With checkCRCOnRecover, the default, load cuts the log there if it walks the file.",
        do=f"{_COPY} The messages after it may be whole: pullsim import --as-found keeps them.",
    ),
    FindingCode(
        code="LOG_ODD_RECORD",
        severity=Severity.WRONG,
        what="A record names another place in the log than its own, or has a negative length, or has no topic that its version may have.",
        broker="The broker dispatches and delivers the record as it is.",
        do=_COPY,
    ),
    FindingCode(
        code="LOG_DIFFERS",
        severity=Severity.WRONG,
        what="A record, encoded again from its fields, has other bytes: no broker of a known version wrote it so.",
        broker="The broker dispatches and delivers the record as it is.",
        do="Compare the record with that of a replica; the finding's text names the byte where the two encodings differ.",
    ),
    FindingCode(
        code="LOG_TAIL",
        severity=Severity.MENDED,
        what="After the last record of the commit log there are bytes that are not zero: a record that was cut off, or garbage.",
        broker="Load cuts the log after the last whole record, and new messages overwrite the bytes.",
        do="Nothing; producers got no SEND_OK for a record that was not written to its end, unless flushes are asynchronous.",
    ),
    FindingCode(
        code="CQ_NO_RECORD",
        severity=Severity.LOST,
        what="An entry of a queue points to a place of the commit log where no record of its size begins.",
        broker="A pull skips the entry, or delivers the bytes at that place, which clients cannot decode.",
        do=_COPY,
        from_log=True,
        from_queue=("MAPPED_FILE", "FILES_MISSING"),
    ),
    FindingCode(
        code="CQ_MISSING",
        severity=Severity.LOST,
        what="Messages of the commit log have no entry in their queue: no consumer gets them.",
        broker=(
            "After a crash, start dispatches again the messages from the checkpoint on; after a clean stop, only those "
            "after the last entry of any queue. Other messages stay without an entry."
        ),
        do=REBUILD,
        from_queue=_QUEUE_DAMAGE,
    ),
    FindingCode(
        code="CQ_NOT_FULL",
        severity=Severity.LOST,
        what=(
            "An entry of a queue is empty, although a later file of the queue follows: a pull that reaches the entry "
            "finds nothing and stays there."
        ),
        broker="Load notices it only in the last three files of the queue, and cuts the queue there.",
        do=REBUILD,
        from_queue=("FILES_MISSING", "MAPPED_FILE"),
    ),
    FindingCode(
        code="CQ_OTHER_MESSAGE",
        severity=Severity.WRONG,
        what="An entry points to a message of another queue, or to a message with another offset in its queue.",
        broker="The message is delivered to each pull that reaches the entry.",
        do=REBUILD,
        from_log=True,
    ),
    FindingCode(
        code="CQ_TAGS_CODE",
        severity=Severity.WRONG,
        what="An entry's tagsCode is not the hash code of its message's tag.",
        broker="TAG filters pass the message although they should not, or stop it although they should pass it.",
        do=REBUILD,
    ),
    FindingCode(
        code="CQ_NO_EXT",
        severity=Severity.WRONG,
        what="An entry names a unit of the consume queue extension that is missing or belongs to another message.",
        broker="Load deletes the extension files after a bad unit; SQL92 filters then read the message, and TAG filters let it pass.",
        do=REBUILD,
        from_queue=("EXT_BAD_UNIT", "EXT_DIFFERS"),
    ),
    FindingCode(
        code="CQ_TWICE",
        severity=Severity.WRONG,
        what="Messages have more than one entry in their queue: consumers get them twice.",
        broker="The broker does nothing about it: it dispatched the messages twice after a crash.",
        do="Nothing, if consumers are idempotent, as RocketMQ asks of them.",
        from_queue=("CQ_OTHER_MESSAGE",),
        # messages after the damage are in the log, but no walk reaches them
        from_store=("LOG_BAD_RECORD", "LOG_NO_RECORD"),
    ),
    FindingCode(
        code="CQ_DIFFERS",
        severity=Severity.WRONG,
        what="Entries of a queue, encoded again, have other bytes.",
        broker="The broker uses the entries as they are.",
        do=REBUILD,
    ),
    FindingCode(
        code="CQ_BEYOND_LOG",
        severity=Severity.LOST,
        what="The commit log ends before its queues do: entries point past the end of the log, and their messages are gone.",
        broker="Load cuts these entries off.",
        do=(
            "Copy the last files of the commit log again from the stopped broker; if they are the same there, take the "
            "messages from a replica, or send them again."
        ),
        from_store=("LOG_BAD_RECORD", "LOG_NO_RECORD"),
    ),
    FindingCode(
        code="CQ_TAIL",
        severity=Severity.MENDED,
        what="After the last entry of a queue there are bytes that are not zero.",
        broker="Load ends the queue at its first empty entry; new entries overwrite the bytes.",
        do="Look at the entries after the empty one: if the queue also has CQ_NOT_FULL, no pull reaches them.",
        from_queue=("CQ_NOT_FULL", "CQ_MISSING"),
    ),
    FindingCode(
        code="EXT_BAD_UNIT",
        severity=Severity.WRONG,
        what="A unit of the consume queue extension does not decode.",
        broker="Load cuts the extension there.",
        do=REBUILD,
    ),
    FindingCode(
        code="EXT_DIFFERS",
        severity=Severity.WRONG,
        what="A unit of the consume queue extension, encoded again, has other bytes.",
        broker="The broker uses the unit as it is.",
        do=REBUILD,
    ),
    FindingCode(
        code="EXT_TAIL",
        severity=Severity.NOTE,
        what="After the last unit of an extension file there are bytes that are not zero.",
        broker="New units overwrite the bytes.",
        do="Nothing.",
    ),
    FindingCode(
        code="INDEX_NO_MESSAGE",
        severity=Severity.WRONG,
        what="Entries of an index file point to places of the commit log where no record begins.",
        broker="Look-ups by key leave these entries out.",
        do=_INDEX,
        from_log=True,
    ),
    FindingCode(
        code="INDEX_OTHER_KEY",
        severity=Severity.WRONG,
        what="Entries of an index file point to messages that do not have the entry's key.",
        broker="Look-ups by key return these messages; clients drop them.",
        do=_INDEX,
        from_log=True,
    ),
    FindingCode(
        code="INDEX_CHAINS",
        severity=Severity.WRONG,
        what="The slots and chains of an index file are not those that its keys require.",
        broker="Look-ups by key miss messages, or follow a chain in a circle.",
        do=_INDEX,
    ),
    FindingCode(
        code="INDEX_LENGTH",
        severity=Severity.WRONG,
        what="An index file has another length than the other index files.",
        broker="Load maps it with the configured length: a short file grows, and its slots are read from the wrong places.",
        do=_INDEX,
    ),
    FindingCode(
        code="INDEX_SIZES",
        severity=Severity.WRONG,
        what="No maxHashSlotNum agrees with the chains of all index files, so that none could be checked.",
        broker="Look-ups by key use the configured maxHashSlotNum.",
        do="Give maxHashSlotNum with --set or --properties; if it is right, delete the index files of the stopped broker.",
        from_store=("INDEX_CHAINS",),
    ),
    FindingCode(
        code="INDEX_HEADER",
        severity=Severity.WRONG,
        what="The header of an index file names other first and last messages than its entries do.",
        broker="Look-ups by time may skip the file.",
        do=_INDEX,
    ),
    FindingCode(
        code="INDEX_BEYOND_LOG",
        severity=Severity.MENDED,
        what="Entries of an index file point past the end of the commit log.",
        broker="After a crash, load deletes an index file that is newer than the checkpoint.",
        do="Nothing: look-ups by key leave these entries out until new messages lie there.",
        from_store=("LOG_BAD_RECORD", "LOG_NO_RECORD", "LOG_TAIL", "CQ_BEYOND_LOG"),
    ),
    FindingCode(
        code="INDEX_TAIL",
        severity=Severity.NOTE,
        what="After the last entry of an index file there are bytes that are not zero.",
        broker="New entries overwrite the bytes.",
        do="Nothing.",
    ),
    FindingCode(
        code="CHECKPOINT_AHEAD",
        severity=Severity.WRONG,
        what="By the checkpoint, messages are on disk that are later than the last message of the commit log.",
        broker=(
            "After a crash, recovery begins too late, and may miss messages that were not written. After a clean stop it has no effect."
        ),
        do="Stop the broker cleanly once, or delete the checkpoint of the stopped broker: recovery then begins at the first file.",
        from_store=("LOG_BAD_RECORD", "LOG_NO_RECORD", "CQ_BEYOND_LOG"),
    ),
    FindingCode(
        code="CHECKPOINT_LENGTH",
        severity=Severity.MENDED,
        what="The checkpoint file has another length than the broker writes.",
        broker=("Start maps the file with its own length; times that it lacks are 0, and recovery after a crash begins at the first file."),
        do="Nothing.",
    ),
    FindingCode(
        code="CHECKPOINT_DIFFERS",
        severity=Severity.NOTE,
        what="The checkpoint, encoded again, has other bytes.",
        broker="The next shutdown writes the file again.",
        do="Nothing.",
    ),
    FindingCode(
        code="CONFIG_BROKEN",
        severity=Severity.WRONG,
        what="A file of config/ is not what the broker writes.",
        broker="Load takes NAME.bak instead; if that is broken too, the broker begins without these topics, groups or offsets.",
        do="Compare the file with its .bak, and put the right one in its place before the broker starts.",
    ),
    FindingCode(
        code="CONFIG_DIFFERS",
        severity=Severity.NOTE,
        what="A file of config/ has valid content in another form than the broker's: a person, a tool or another version wrote it.",
        broker="The broker reads the file, and writes it in its own form at the next change.",
        do="Nothing.",
    ),
    FindingCode(
        code="OFFSET_BEYOND_QUEUE",
        severity=Severity.WRONG,
        what="Groups or delay levels have offsets past the end of their queue.",
        broker=(
            "The next pull is sent to the end of the queue. 4.9.3 sends it to 0 if the queue begins at 0: the group "
            "consumes all messages again."
        ),
        do="Set the offsets with mqadmin resetOffsetByTime, if the queue is the right one.",
        from_store=("CQ_MISSING", "CQ_NOT_FULL", "LOG_BAD_RECORD", "LOG_NO_RECORD"),
    ),
    FindingCode(
        code="NOT_SHUT_DOWN",
        severity=Severity.MENDED,
        what="The broker was killed, or it is running: the file abort exists.",
        broker="Start recovers the store from the checkpoint on, and dispatches again the messages after it.",
        do="If the broker is running, stop it and copy the store again. pullsim recover shows the store after the broker's start.",
    ),
    FindingCode(
        code="LOCK_OTHER",
        severity=Severity.NOTE,
        what="The lock file has other bytes than the broker writes.",
        broker="Start writes the file again.",
        do="Nothing.",
    ),
    FindingCode(
        code="TABLE_FILE",
        severity=Severity.WRONG,
        what="The lake and the store have different files, or different facts about a file.",
        broker="The broker knows no lake.",
        do=f"{_IMPORT} The store has changed since the import, or the lake was made from another store.",
    ),
    FindingCode(
        code="TABLE_BYTES",
        severity=Severity.WRONG,
        what="The rows of the lake give another number of bytes of a file than the store has.",
        broker="The broker knows no lake.",
        do=_IMPORT,
        from_store=("TABLE_FILE",),
    ),
    FindingCode(
        code="TABLE_DIFFERS",
        severity=Severity.WRONG,
        what="Rows of the lake differ from those that the store gives.",
        broker="The broker knows no lake.",
        do=_IMPORT,
        from_store=("TABLE_FILE",),
    ),
    FindingCode(
        code="TABLE_CONSTRAINT",
        severity=Severity.WRONG,
        what="Rows of the lake break a constraint of their table.",
        broker="The broker knows no lake.",
        do=f"{_IMPORT} Another program than pullsim wrote to the table.",
    ),
)
CODES: Final = {one.code: one for one in _ALL}
SEVERITIES: Final = tuple(Severity)


def root_of(code: str, *, of_log: Iterable[str], of_queue: Collection[str], of_store: Collection[str]) -> str:
    """Return the code of the root cause of a finding; its own code if it follows from none.

    Rule: a finding follows only from a finding that is at least as bad, so that no loss is hidden below a note.

    Args:
        code: code of the finding.
        of_log: codes of findings about the stretch of the commit log that it points to.
        of_queue: codes of the findings of its queue; empty for a finding of no queue.
        of_store: codes of all findings.
    """
    seen = {code}
    while True:
        known = CODES[code]
        from_log = of_log if known.from_log else ()
        found = [*from_log, *(one for one in known.from_queue if one in of_queue), *(one for one in known.from_store if one in of_store)]
        cause = next((one for one in found if one not in seen and not _is_worse(known, CODES[one])), None)
        if cause is None:
            return code
        seen.add(cause)
        code = cause


def _is_worse(one: FindingCode, other: FindingCode) -> bool:
    return SEVERITIES.index(one.severity) < SEVERITIES.index(other.severity)
