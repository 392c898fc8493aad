"""Checks the files of a store that are not mapped files of log or queues: index, queue extension, checkpoint, config, lock and abort.

Broker source (4.9.3): IndexFile, ConsumeQueueExt, StoreCheckpoint, ConfigManager, DefaultMessageStore.createTempFile.
Surprise: a checkpoint may be older than the log, an index may lack messages, and a group's offset may lie in a deleted file. None of
these is an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.settings.quantities import counted
from pipeline.verify.verify_log import Checked, LogFiles, Queue
from store_format.big_endian import Bytes
from store_format.config import config_files as cf
from store_format.config import later_files as lf
from store_format.config.config_rows import ConsumerOffsets, DelayOffsets
from store_format.config.fastjson import parse_json, plain
from store_format.config.fastjson_scanner import BLANKS
from store_format.config.fastjson_writer import FASTJSON, FASTJSON2, TextForm, encode_compact_json, encode_json
from store_format.errors import ConfigFileError
from store_format.files.files import Entry, FilePath
from store_format.files.mapped_files import offset_to_file_name
from store_format.index.index_dispatch import messages_to_index
from store_format.index.index_file import INDEX_ENTRY, INDEX_HEADER, IndexFile, IndexSizes
from store_format.index.index_service import is_index_file_name
from store_format.index.index_sizes import sizes_agree
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.log.dispatch_request import SCHEDULE_TOPIC, read_requests
from store_format.queue.consume_queue import units_of
from store_format.queue.consume_queue_ext import UnitUnderflowError, decode_unit, encode_unit
from store_format.store.checkpoint import CHECKPOINT_LENGTH, decode_checkpoint, encode_checkpoint
from store_format.store.entry_check import Held, check_keys
from store_format.store_paths import ABORT_FILE, CHECKPOINT_FILE, CONFIG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, LOCK, LOCK_FILE, kind_of

_CONFIG: dict[str, tuple[Callable[[bytes, str], Any], Callable[[Any, TextForm], bytes]]] = {
    "topics.json": (cf.decode_topic_configs, cf.encode_topic_configs),
    "subscriptionGroup.json": (cf.decode_subscription_groups, cf.encode_subscription_groups),
    "consumerOffset.json": (cf.decode_consumer_offsets, cf.encode_consumer_offsets),
    "lmqConsumerOffset.json": (cf.decode_lmq_consumer_offsets, cf.encode_consumer_offsets),
    "delayOffset.json": (cf.decode_delay_offsets, cf.encode_delay_offsets),
    "consumerFilter.json": (cf.decode_consumer_filters, cf.encode_consumer_filters),
}
# files of a broker 5.x, with the functions that decode them and encode the decoded text
_LATER_CONFIG: dict[str, tuple[Callable[[bytes, str], Any], Callable[[object], bytes]]] = {
    "consumerOrderInfo.json": (lf.decode_order_infos, partial(encode_json, form=FASTJSON2)),
    "timermetrics": (lf.decode_timer_metrics, encode_compact_json),
    "transactionMetrics": (lf.decode_transaction_metrics, encode_compact_json),
}
NOT_CHECKED = "not checked"


def _has_key(content: Bytes, positions: NDArray[np.int64], hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each message has a key or a tag with the hash that is given beside it; texts are decoded as Java decodes them."""
    starts = np.unique(positions)
    keys = messages_to_index(read_requests(content, starts, None), with_tags=True)
    counts = np.diff(keys.key_ends, prepend=0)
    return np.isin((positions << 31) | hashes, (np.repeat(starts[: len(counts)], counts) << 31) | keys.hashes.astype(np.int64))


class OtherFiles:
    """Checks the files of one store that are not mapped files of log or queues. Spark can send it to its workers."""

    def __init__(self, log: LogFiles, queue_file_size: int, index_sizes: IndexSizes | None, newest: int | None) -> None:
        """`index_sizes` is None if no sizes agree with the files; `newest` is the greatest storeTimestamp at the end of the log, ms."""
        self.log, self.store = log, log.store
        self.queue_file_size = queue_file_size
        self.index_sizes = index_sizes
        self.newest = newest

    def verify(self, path: FilePath, entry: Entry) -> Checked:
        """Check one file; its path says which kind of file it is."""
        found = Checked("/".join(path), kind_of(path), entry.length)
        if path[0] == INDEX and len(path) == 2 and is_index_file_name(path[1]):
            self._index(found, path)
        elif path[0] == CONSUME_QUEUE_EXT and len(path) == 4:
            self._extension(found, path)
        elif path == (CHECKPOINT_FILE,):
            self._checkpoint(found, self.store.head(CHECKPOINT_LENGTH, CHECKPOINT_FILE) or b"")
        elif path[0] == CONFIG and len(path) == 2 and path[1].removesuffix(".bak") in _CONFIG:
            self._config(found, path)
        elif path[0] == CONFIG and len(path) == 2 and path[1].removesuffix(".bak") in _LATER_CONFIG:
            self._later_config(found, path)
        elif path == (LOCK_FILE,):
            if entry.length > len(LOCK) or self.store.head(len(LOCK), LOCK_FILE) not in {LOCK, b""}:
                found.find("LOCK_OTHER", "other bytes than the broker's")
        elif path == (ABORT_FILE,):
            found.find("NOT_SHUT_DOWN", "the broker was killed, or runs; its next start recovers the store")
        else:
            found.result = NOT_CHECKED
        return found

    # index --------------------------------------------------------------------------------------------------------------------------

    def _index(self, found: Checked, path: FilePath) -> None:
        content = self.store.content(*path)
        sizes = self.index_sizes
        if sizes is None:
            found.find("INDEX_SIZES", "no maxHashSlotNum agrees with the chains of all index files; give it with --set")
            return
        if len(content) != sizes.file_length:
            found.find("INDEX_LENGTH", f"expected {counted(sizes.file_length, 'byte')}, found {len(content):,}")
            return
        file = IndexFile(path[1], content, sizes)
        header = file.header
        if not sizes_agree(file):
            found.find("INDEX_CHAINS", "put again, its keys give other slots or chains")
            return
        used = IndexSizes(hash_slot_num=sizes.hash_slot_num, index_num=header.index_count).file_length
        if content[used:].any():
            found.find("INDEX_TAIL", f"{np.count_nonzero(content[used:]):,} bytes that are not zero after the last entry")
        start = INDEX_HEADER.itemsize + 4 * sizes.hash_slot_num
        entries = content[start:used].view(INDEX_ENTRY)[1:]
        offsets = entries["phyOffset"].astype(np.int64)
        if len(offsets) and (header.begin_phy_offset, header.end_phy_offset) != (offsets[0], offsets[-1]):
            found.find("INDEX_HEADER", "its first and last entry are not those that its header names")
        beyond = offsets >= self.log.end
        if beyond.any():
            count = int(np.count_nonzero(beyond))
            found.find(
                "INDEX_BEYOND_LOG",
                f"{counted(count, 'entry', 'entries')} past the commit log, which ends at {self.log.end}",
                messages=count,
            )
        self._index_entries(found, offsets, entries["keyHash"].astype(np.int64), (offsets >= self.log.start) & ~beyond)

    def _index_entries(self, found: Checked, offsets: NDArray[np.int64], hashes: NDArray[np.int64], inside: NDArray[np.bool_]) -> None:
        no_message = inside.copy()
        other_key = np.zeros(len(offsets), np.bool_)
        for file, content, rows in self.log.stretches(np.where(inside, offsets, -1)):
            positions = offsets[rows] - file.from_offset
            held = check_keys(content, file.wrote, positions, hashes[rows], self.log.version)
            no_message[rows] = held == Held.NO_RECORD
            other_key[rows] = held == Held.OTHER_CODE
            unsure = held == Held.UNSURE
            if unsure.any():
                other_key[rows[unsure]] = ~_has_key(content, positions[unsure], hashes[rows[unsure]])
        if no_message.any():
            count, first = int(np.count_nonzero(no_message)), int(offsets[no_message.argmax()])
            text = f"{counted(count, 'entry', 'entries')} without a message; the first for offset {first}"
            found.find("INDEX_NO_MESSAGE", text, messages=count, physic_offset=first)
        if other_key.any():
            count, first = int(np.count_nonzero(other_key)), int(offsets[other_key.argmax()])
            text = f"{counted(count, 'entry', 'entries')} whose message has no such key; the first for {first}"
            found.find("INDEX_OTHER_KEY", text, messages=count, physic_offset=first)

    # extension, checkpoint ----------------------------------------------------------------------------------------------------------

    def _extension(self, found: Checked, path: FilePath) -> None:
        content = self.store.content(*path)
        at = 0
        while at + 2 <= len(content):
            try:
                unit = decode_unit(content[at : at + (1 << 15)])
            except UnitUnderflowError as error:
                found.find("EXT_BAD_UNIT", f"byte {at}: {error}")
                return
            if unit is None:
                break
            raw = encode_unit(unit)
            if unit.size != len(raw) or raw != content[at : at + len(raw)].tobytes():
                found.find("EXT_DIFFERS", f"byte {at}: written again, the unit is another one")
                return
            at += len(raw)
        after = content[at + 2 if content[at : at + 2].all() else at :]
        if after.any():
            found.find("EXT_TAIL", f"{np.count_nonzero(after):,} bytes that are not zero after the last unit, at byte {at}")

    def _checkpoint(self, found: Checked, raw: bytes) -> None:
        checkpoint = decode_checkpoint(raw)
        if found.length != CHECKPOINT_LENGTH:
            found.find("CHECKPOINT_LENGTH", f"expected {CHECKPOINT_LENGTH} bytes, found {found.length}")
        elif encode_checkpoint(checkpoint, raw) != raw:
            found.find("CHECKPOINT_DIFFERS", "written again, it is another one")
        stamps = {
            "physicMsgTimestamp": checkpoint.physic_msg_timestamp,
            "logicsMsgTimestamp": checkpoint.logics_msg_timestamp,
            "indexMsgTimestamp": checkpoint.index_msg_timestamp,
        }
        for name, stamp in stamps.items():
            if self.newest is not None and stamp > self.newest:
                found.find("CHECKPOINT_AHEAD", f"{name} {stamp} is later than the last message of the commit log, {self.newest}")

    # config -------------------------------------------------------------------------------------------------------------------------

    def _config(self, found: Checked, path: FilePath) -> None:
        decode, encode = _CONFIG[path[1].removesuffix(".bak")]
        try:
            raw = self.store.read_config(path[1])
            if not raw:
                return
            table = decode(raw, found.path)
        except ConfigFileError as error:
            found.find("CONFIG_BROKEN", str(error))
            return
        # a broker replaces a file when something changes, so an older broker's text may be there after an upgrade
        if all(encode(table, form) != raw.rstrip(BLANKS) for form in (FASTJSON, FASTJSON2)):
            found.find("CONFIG_DIFFERS", "written again, it is another text than the broker's")
        if path[1].endswith(".bak"):
            return
        if isinstance(table, ConsumerOffsets):
            self._beyond(found, table.by_queue().items(), lambda key: (key[1], key[2]), "group {0[0]}")
        elif isinstance(table, DelayOffsets):
            self._beyond(found, table.offsetTable.items(), lambda level: (SCHEDULE_TOPIC.decode(), level - 1), "delay level {0}")

    def _later_config(self, found: Checked, path: FilePath) -> None:
        decode, encode = _LATER_CONFIG[path[1].removesuffix(".bak")]
        try:
            raw = self.store.read_config(path[1])
            if not raw:
                return
            decode(raw, found.path)
            written = encode(plain(parse_json(raw, found.path)))
        except ConfigFileError as error:
            found.find("CONFIG_BROKEN", str(error))
            return
        if written != raw.rstrip(BLANKS):
            found.find("CONFIG_DIFFERS", "written again, it is another text than the broker's")

    def _beyond(self, found: Checked, offsets: Iterable[tuple[Any, int]], queue_of: Callable[[Any], Queue], whose: str) -> None:
        set_ones = [(key, offset) for key, offset in offsets if offset > 0]
        by_file: defaultdict[tuple[Queue, int], list[tuple[int, int]]] = defaultdict(list)
        for number, (key, offset) in enumerate(set_ones):
            at = (offset - 1) * CQ_STORE_UNIT_SIZE
            inside = at % self.queue_file_size
            by_file[queue_of(key), at - inside].append((number, inside))
        beyond: list[int] = []
        for (queue, start), of_file in by_file.items():
            numbers, places = np.array(of_file, np.int64).T
            beyond += numbers[~self._has_entries(queue, start, places)].tolist()
        if beyond:
            key, offset = set_ones[min(beyond)]
            topic, queue_id = queue_of(key)
            past = counted(len(beyond), "offset past the end of its queue", "offsets past the end of their queue")
            text = f"{past}; the first of {whose.format(key)}: {topic}/{queue_id}, {offset}"
            found.find("OFFSET_BEYOND_QUEUE", text, queue_offset=offset)

    def _has_entries(self, queue: Queue, start: int, inside: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each position, whether the queue file that begins at byte `start` has an entry there. A deleted file counts as full."""
        folder = (CONSUME_QUEUE, queue[0], str(queue[1]))
        name = offset_to_file_name(start)
        names = [entry.name for entry in self.store.folder(*folder)]
        if name not in names:
            return np.full(len(inside), bool(names) and name < min(names))
        first = int(inside.min())
        units = units_of(self.store.part(first, int(inside.max()) + CQ_STORE_UNIT_SIZE, *folder, name))
        rows = (inside - first) // CQ_STORE_UNIT_SIZE
        is_there = rows < len(units)
        is_there[is_there] = (units["physicOffset"][rows[is_there]] >= 0) & (units["size"][rows[is_there]] > 0)
        return is_there
