"""Which golden stores a start changes, and the files of a store after our load and start."""

from __future__ import annotations

from pathlib import Path

from tests.makers.store_trees import Tree, tree

# stores of a clean shutdown; `ext` has a queue extension, `torn-ext-missing` lost the files of its extension
CLEAN = ("basic", "cleaned", "ext", "holes", "preblank0", "preblank1", "small", "torn-ext-missing", "window")
# stores that are changed by load or start, which cut, make and delete files; with and without an abort file
TORN = (
    "torn-bad-magic",
    "torn-commitlog-missing",
    "torn-cq-behind",
    "torn-cq-topic-missing-abort",
    "torn-half-message",
    "torn-index-missing-abort",
    "torn-last-file-zeroed",
    "torn-tail-garbage",
)


def started(store: Path, options: list[str]) -> Tree:
    """The files of a store after our load and start."""
    from pipeline.files.store_files import StoreFiles
    from pipeline.settings.settings import BrokerSettings
    from pipeline.store.message_store import store_over
    from pipeline.store.store_settings import store_settings

    files = StoreFiles(str(store))
    message_store = store_over(files, store_settings(files, BrokerSettings.from_sources(options=options)))
    assert message_store.load()
    assert message_store.start() == "ok"
    changed = message_store.files
    after: Tree = {name: found for name, found in tree(store).items() if tuple(name.split("/")) not in changed.deleted}
    for path in changed.changes:
        former = after.get("/".join(path))
        after["/".join(path)] = (former[0] if former else -1, changed.content(path).tobytes())
    return after


def files_only(found: Tree, *, like: Tree) -> Tree:
    """The files of `found`: empty folders are left out, and files that start made in `like` have the time -1."""
    files = {name: file for name, file in found.items() if file is not None}
    return {name: (-1 if (like.get(name) or (0,))[0] == -1 else file[0], file[1]) for name, file in files.items()}
