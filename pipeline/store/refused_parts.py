"""Refuses a store of broker 5.x that has a part that is not modelled; the error names the part."""

from __future__ import annotations

from pipeline.files.store_files import StoreFiles
from pipeline.settings.settings import BrokerSettings
from store_format.config.config_files import decode_topic_configs, load
from store_format.config.config_rows import members_of
from store_format.errors import StoreError, UnsupportedStoreError
from store_format.files.files import FilePath
from store_format.store.parts_of_5 import PARTS, ROCKSDB_CONFIG, ROCKSDB_QUEUES, TIERED_STORAGE, Part, is_v2_record
from store_format.store_paths import COMMIT_LOG

_ROCKSDB_STORE = "defaultRocksDB"
_TOPICS = "topics.json"


def refuse_parts(files: StoreFiles, settings: BrokerSettings) -> None:
    """Raise for the first part of a store that is not modelled, by its folders and files, its topics' attributes and the settings.

    Args:
        files: the store's files.
        settings: the broker's settings; storeType=default says that queues in RocksDB are leftovers.

    Raises:
        UnsupportedStoreError: the store has a part that is not modelled.
    """
    if settings.explicit("storeType") == _ROCKSDB_STORE:
        raise _refused(files.root, ROCKSDB_QUEUES)
    if settings.explicit("configManagerVersion") == "v2":
        raise _refused(files.root, ROCKSDB_CONFIG)
    if "TieredMessageStore" in (settings.explicit("messageStorePlugIn") or ""):
        raise _refused(files.root, TIERED_STORAGE)
    is_default = settings.explicit("storeType") == "default"
    for part in PARTS:
        for folder in () if part is ROCKSDB_QUEUES and is_default else part.folders:
            if _entries(files, folder):
                raise _refused(files.path_of(*folder), part)
        for path in part.files:
            if path[-1] in _entries(files, path[:-1]):
                raise _refused(files.path_of(*path), part)
    for name, part in _parts_of_topics(files):
        raise _refused(f"{files.path_of('config', _TOPICS)}, topic {name}", part)


def refuse_v2_record(files: StoreFiles, path: FilePath, position: int) -> None:
    """Raise if the walk over a file of the log ended at a V2 record.

    Raises:
        UnsupportedStoreError: a V2 record begins at `position`.
    """
    length = next((entry.length for entry in files.folder(*path[:-1]) if entry.name == path[-1]), 0)
    if is_v2_record(files.part(position, min(position + 8, length), *path)):
        raise UnsupportedStoreError(
            files.path_of(*path),
            "records of version 1",
            "one of version 2, which a broker 5.x writes for a topic of more than 127 bytes",
            position=position,
            hint="pullsim does not read them; --as-found imports what lies before it",
        )


def refuse_v2_log_end(files: StoreFiles, log_end: int, log_file_size: int) -> None:
    """Raise as `refuse_v2_record` for the end of a log, whose files have `log_file_size` bytes."""
    start = log_end // log_file_size * log_file_size
    name = next((entry.name for entry in files.folder(COMMIT_LOG) if entry.name.isdecimal() and int(entry.name) == start), None)
    if name is not None:
        refuse_v2_record(files, (COMMIT_LOG, name), log_end - start)


def _entries(files: StoreFiles, folder: FilePath) -> frozenset[str]:
    """The names in a folder; none if it cannot be read: the code that needs the folder reports that."""
    try:
        return frozenset(entry.name for entry in files.folder(*folder))
    except StoreError:
        return frozenset()


def _parts_of_topics(files: StoreFiles) -> list[tuple[str, Part]]:
    """Each topic with an attribute of a part, and the part; none if topics.json cannot be read."""
    path = files.path_of("config", _TOPICS)
    try:
        main, bak = files.read_config(_TOPICS), files.read_config(f"{_TOPICS}.bak")
        # parsing the file takes seconds if there are many topics
        words = [part.attribute[1].encode() for part in PARTS if part.attribute is not None]
        if not any(word in (text or b"") for word in words for text in (main, bak)):
            return []
        topics = load(main, bak, path, decode_topic_configs).table
    except StoreError:  # the code that needs topics.json reports that
        return []
    found = []
    for topic in topics.topicConfigTable:
        attributes = members_of(topic).get("attributes")
        held = attributes.items() if isinstance(attributes, dict) else ()
        found += [(topic.topicName, part) for part in PARTS if part.attribute is not None and part.attribute in held]
    return found


def _refused(where: str, part: Part) -> UnsupportedStoreError:
    return UnsupportedStoreError(
        where, "a store on the default settings of a broker", f"{part.what}, which pullsim does not read", hint=part.hint
    )
