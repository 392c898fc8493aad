"""Dispatches messages to the index; the changes to its files are kept as byte ranges.

Broker source (4.9.3): CommitLogDispatcherBuildIndex, IndexService.buildIndex, IndexFile.indexKeyHashMethod.
Rule: the index gets every dispatched message, in order. It hashes the text "topic#key" for UNIQ_KEY and then for each of KEYS.
Surprise: blanks separate the keys in KEYS, empty keys are skipped, and a key can be indexed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from store_format.big_endian import Bytes
from store_format.broker_version import BrokerVersion, Rule, Variant
from store_format.compiled import compiled
from store_format.files.changed_files import changed_ranges
from store_format.files.files import Files
from store_format.index import index_file as ix
from store_format.index.index_service import IndexService, is_index_file_name, load_index
from store_format.java.string_hash import hash_on
from store_format.layout import TRANSACTION_ROLLBACK_TYPE
from store_format.log.dispatch_request import DispatchRequests
from store_format.record.record_columns import are_utf8
from store_format.store_paths import INDEX

BUILD_INDEX: Final = Rule(
    term="buildIndex",
    variants=(
        Variant(BrokerVersion.V4_9_3, False, "UNIQ_KEY and KEYS are indexed", "IndexService.buildIndex"),
        Variant(
            BrokerVersion.V5_5_0,
            True,
            "after UNIQ_KEY and KEYS the tag is indexed too, as topic#T#tag",
            "IndexService.buildIndex, buildKey",
        ),
    ),
)

_BLANK = ord(ix.KEY_SEPARATOR)
_HASH = ord("#")
_TAG_TYPE = ord("T")


@compiled
def hash_key(buffer, code, start, end):  # type: ignore[no-untyped-def]
    """indexKeyHashMethod of a text: a beginning with the hash `code`, then the valid UTF-8 in `buffer[start:end]`."""
    code = hash_on(buffer, start, end, code)
    code = code - (np.int64(1) << 32) if code >= (np.int64(1) << 31) else code
    return 0 if code == -(np.int64(1) << 31) else abs(code)


@compiled
def hash_keys(buffer, prefix, uniq_key, uniq_key_end, keys, keys_end, hashes, count):  # type: ignore[no-untyped-def]
    """Write the hashes of a message's UNIQ_KEY and of each of its KEYS to `hashes` from index `count` on; returns the new count.

    `prefix` is the hash of the topic and "#". The end of a missing text is -1.
    """
    if uniq_key_end >= 0:
        hashes[count] = hash_key(buffer, prefix, uniq_key, uniq_key_end)
        count += 1
    while keys < keys_end:
        stop = keys
        while stop < keys_end and buffer[stop] != _BLANK:
            stop += 1
        if stop > keys:
            hashes[count] = hash_key(buffer, prefix, keys, stop)
            count += 1
        keys = stop + 1
    return count


@compiled
def hash_tag(buffer, prefix, start, end):  # type: ignore[no-untyped-def]
    """The hash of the key of a tag, valid UTF-8 in `buffer[start:end]`; `prefix` is the hash of the topic and "#"."""
    code = ((prefix * 31 + _TAG_TYPE) * 31 + _HASH) & 0xFFFFFFFF
    return hash_key(buffer, code, start, end)


@compiled
def topic_prefix(buffer, start, end):  # type: ignore[no-untyped-def]
    """The hash of a topic and "#", with which the text of each key begins."""
    return (hash_on(buffer, start, end, np.int64(0)) * 31 + _HASH) & 0xFFFFFFFF


@compiled
def _hash_messages(buffer, topics, uniq_keys, keys, is_indexed, key_ends, hashes):  # type: ignore[no-untyped-def]
    count = 0
    for i in range(len(key_ends)):
        if is_indexed[i]:
            prefix = topic_prefix(buffer, topics[0, i], topics[0, i] + topics[1, i])
            uniq_key_end = uniq_keys[0, i] + uniq_keys[1, i] if uniq_keys[1, i] >= 0 else np.int64(-1)
            keys_end = keys[0, i] + max(keys[1, i], np.int64(0))
            count = hash_keys(buffer, prefix, uniq_keys[0, i], uniq_key_end, keys[0, i], keys_end, hashes, count)
        key_ends[i] = count
    return count


def messages_to_index(requests: DispatchRequests, *, with_tags: bool = False) -> ix.IndexedMessages:
    """The offsets, times and key hashes that the index gets of dispatched messages; `with_tags` is the value of BUILD_INDEX."""
    columns = [requests.topic, requests.uniq_key, requests.keys]
    if with_tags or not all(are_utf8(requests.buffer, column).all() for column in columns):
        return _decoded(requests, with_tags=with_tags)
    bound = len(requests) + int((np.maximum(requests.keys.lengths, 0) // 2 + 1).sum())
    hashes = np.empty(bound, np.int32)
    key_ends = np.empty(len(requests), np.int64)
    topics, uniq_keys, keys = (np.stack([column.starts, column.lengths]) for column in columns)
    is_indexed = (requests.sys_flag & TRANSACTION_ROLLBACK_TYPE) != TRANSACTION_ROLLBACK_TYPE
    count = _hash_messages(requests.buffer, topics, uniq_keys, keys, is_indexed, key_ends, hashes)
    return ix.IndexedMessages(offsets=requests.physic_offset, stamps=requests.store_timestamp, key_ends=key_ends, hashes=hashes[:count])


def _decoded(requests: DispatchRequests, *, with_tags: bool) -> ix.IndexedMessages:
    """The result of `messages_to_index` if tags are indexed, or if texts are no UTF-8; these are decoded as Java does."""
    messages = []
    for row in range(len(requests)):
        found = {ix.UNIQ_KEY: requests.text(requests.uniq_key, row), ix.KEYS: requests.text(requests.keys, row)}
        properties = {name: text for name, text in found.items() if text is not None}
        if with_tags and requests.has_properties[row] and (tags := requests.properties_map(row).get(ix.TAGS)) is not None:
            properties[ix.TAGS] = tags
        keys = ix.index_keys(requests.text(requests.topic, row) or "", properties, int(requests.sys_flag[row]), with_tags=with_tags)
        messages.append((int(requests.physic_offset[row]), int(requests.store_timestamp[row]), keys))
    return ix.indexed_messages(messages)


@dataclass(slots=True, kw_only=True)
class RunningIndex:
    """The index of a running broker; `settle` writes its changes to `store`.

    Attributes:
        store: the files, to which `settle` writes the changes.
        sizes: settings.
        with_tags: the value of BUILD_INDEX in the broker's version.
        files: the loaded files, then the created ones.
        index_msg_timestamp: the time that flushing a full file sets in the checkpoint, ms; None if no file was flushed.
    """

    store: Files
    sizes: ix.IndexSizes
    with_tags: bool = False
    files: list[ix.IndexFile] = field(default_factory=list)
    index_msg_timestamp: int | None = None
    _grown: dict[str, Bytes] = field(default_factory=dict)
    _to_settle: set[str] = field(default_factory=set)

    def load(self, *, last_exit_ok: bool, index_msg_timestamp: int) -> None:
        """IndexService.load; it deletes and extends files in the store as the broker does.

        `index_msg_timestamp` is the checkpoint's value, ms; `last_exit_ok` is whether there was no abort file.
        """
        names = [entry.name for entry in self.store.entries((INDEX,)) if not entry.is_folder and is_index_file_name(entry.name)]
        loaded = load_index(
            [(name, self.store.content((INDEX, name))) for name in names],
            self.sizes,
            last_exit_ok=last_exit_ok,
            index_msg_timestamp=index_msg_timestamp,
        )
        for name in loaded.deleted:
            self.store.delete((INDEX, name))
        for file in loaded.files:
            if len(self.store.content((INDEX, file.name))) < self.sizes.file_length:
                self.store.set_length((INDEX, file.name), self.sizes.file_length)
        self.files = list(loaded.files)

    def build_index(self, requests: DispatchRequests) -> None:
        """IndexService.buildIndex for each message, in order."""
        if not len(requests):
            return
        if self.files and not self.files[-1].is_write_full and self.files[-1].name not in self._grown:
            self._open_last()
        last = [file.name for file in self.files[-1:] if file.name in self._grown]
        service = IndexService(sizes=self.sizes, files=self.files)
        service.build_index(messages_to_index(requests, with_tags=self.with_tags))
        for file in self.files:
            if file.name in service.created:
                self.store.create((INDEX, file.name), self.sizes.file_length)
                self._grown[file.name] = file.content
        self._to_settle.update(last, service.created)
        if service.index_msg_timestamp is not None:
            self.index_msg_timestamp = service.index_msg_timestamp

    def _open_last(self) -> None:
        last = self.files[-1]
        content = self.store.writable((INDEX, last.name))
        if len(content) < self.sizes.file_length:
            content = ix.mapped_content(content, self.sizes, writable=True)
        self.files[-1] = ix.IndexFile(last.name, content[: self.sizes.file_length], self.sizes)
        self._grown[last.name] = self.files[-1].content

    def settle(self) -> None:
        """Add to `store` the changes of index files since the last call."""
        for name in sorted(self._to_settle):
            path = (INDEX, name)
            for at, data in changed_ranges(self.store.content(path), self._grown[name]):
                self.store.write(path, at, data)
        self._to_settle.clear()
