"""Refuses a store of broker 5.x that has a part that is not modelled; the error names the part."""

from __future__ import annotations

from pipeline.files.store_files import StoreFiles
from pipeline.settings.settings import BrokerSettings
from store_format.config.config_files import decode_topic_configs, load
from store_format.config.config_rows import members_of
from store_format.errors import StoreError, UnsupportedStoreError
from store_format.files.files import FilePath
from store_format.store.parts_of_5 import PARTS, ROCKSDB_CONFIG, ROCKSDB_QUEUES, TIERED_STORAGE, Part

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
