"""Which run a checkpoint belongs to: written into it once, before its first batch, and mended where a crash left half a file.

Surprise: Spark numbers batches from 0 in every new checkpoint. The lake therefore remembers a batch by its checkpoint's own id, never by
the run alone; a run that goes on in a new checkpoint, or in a mended one, has a new id there and asks of each request whether it has an
answer.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow.fs as pafs

from pipeline.files.store_files import filesystem_of
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.replay import At
from pipeline.replay.replay_run import ReplayRun
from pipeline.schema.tables import IMPORTED
from pipeline.settings.settings import BrokerSettings
from pipeline.stream.checkpoint_files import numbered_files, read_json, write_json

_NAME = "pullsim.json"
# Spark's own files, and the request log beside them
SPARK, REQUESTS = "spark", "requests"
_OFFSETS, _COMMITS, _STATE = (f"{SPARK}/{name}" for name in ("offsets", "commits", "state"))
# folder of files that are numbered by batch or entry -> how their names end, lines of each at least, and whether the first one is a version
_NUMBERED = {_OFFSETS: ("", 3, True), _COMMITS: ("", 2, True), REQUESTS: (".json", 1, False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRun:
    """What stays the same for all batches of a checkpoint.

    `checkpoint` is its id, and `store` says which versions the tables of stores had when it was begun.
    """

    run_id: str
    checkpoint: str
    lake: str
    broker: str
    source: str
    at: At
    settings: dict[str, str]
    hold: bool = False
    store: dict[str, int] = field(default_factory=dict)

    def opened(self, lake: Lake) -> OpenedBroker:
        """The broker whose store answers, of `lake` at its present version."""
        return OpenedBroker(lake, self.broker)

    def replay_run(self, lake: Lake, settings: BrokerSettings, started: dt.datetime) -> ReplayRun:
        """The run as replay_run tells it, its first batch begun at `started`."""
        return ReplayRun(
            broker=self.opened(lake),
            run_id=self.run_id,
            source=self.source,
            source_digest=None,
            settings=settings,
            at=self.at,
            started=started,
        )


def store_versions(lake: Lake) -> dict[str, int]:
    """The Delta versions of the tables that answers are made of; each grows with every change."""
    return {table.name: lake.at.tables[table.name] for table in IMPORTED if table.name in lake.at.tables}


def run_of_checkpoint(
    folder: str,
    *,
    run_id: str | None,
    lake: str,
    broker: str,
    source: str,
    at: At,
    settings: dict[str, str],
    hold: bool = False,
    store: dict[str, int] | None = None,
) -> tuple[StreamRun, list[str]]:
    """The run that a checkpoint belongs to, a new one where there is no checkpoint yet; and the files that had to be removed from it.

    Raises:
        LakeError: it belongs to another stream; the message says what is different.
    """
    asked: dict[str, Any] = {"lake": lake, "broker": broker, "source": source, "at": at, "settings": settings, "hold": hold}
    try:
        filesystem, inside = filesystem_of(folder)
        filesystem.create_dir(inside, recursive=True)
        known = _known(filesystem, f"{inside}/{_NAME}")
        if known is None:
            removed = []
            run = StreamRun(run_id=run_id or uuid.uuid4().hex, checkpoint=uuid.uuid4().hex, store=store or {}, **asked)
        else:
            _require_same(folder, known, asked | ({} if run_id is None else {"run_id": run_id}))
            run, removed = StreamRun(**known), _mend(filesystem, inside)
        if removed:
            run = replace(run, checkpoint=uuid.uuid4().hex)
        if removed or known is None:
            write_json(filesystem, inside, _NAME, asdict(run))
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, LakeError):
            raise
        raise LakeError(f"{folder}: expected a folder for the checkpoint of a stream, found {error}") from error
    return run, removed


def _require_same(folder: str, known: dict[str, Any], asked: dict[str, Any]) -> None:
    for name, value in asked.items():
        if known.get(name) != value:
            raise LakeError(
                f"{folder}: expected the checkpoint of a stream with {name} {value!r}, found one with {known.get(name)!r}; "
                "give another --checkpoint"
            )


def _known(filesystem: pafs.FileSystem, path: str) -> dict[str, Any] | None:
    try:
        return {"hold": False} | dict(read_json(filesystem, path))  # that of an older version does not say it
    except FileNotFoundError:
        return None


def _mend(filesystem: pafs.FileSystem, inside: str) -> list[str]:
    """Remove the newest file of each kind where it is not whole, and those that build on it; what they said is found out again."""
    removed = []
    for folder, (ending, lines, versioned) in _NUMBERED.items():
        numbered = numbered_files(filesystem, f"{inside}/{folder}", ending)
        if numbered and not _is_whole(filesystem, numbered[max(numbered)], lines, versioned=versioned):
            removed.append(_remove(filesystem, folder, numbered[max(numbered)]))
    newest_entry = max(numbered_files(filesystem, f"{inside}/{REQUESTS}", ".json"), default=0)
    offsets = numbered_files(filesystem, f"{inside}/{_OFFSETS}")
    while offsets and _entry(filesystem, offsets[max(offsets)]) > newest_entry:
        removed.append(_remove(filesystem, _OFFSETS, offsets.pop(max(offsets))))
    for number, path in numbered_files(filesystem, f"{inside}/{_COMMITS}").items():
        if number > max(offsets, default=-1):  # Spark would take it for the commit of somebody else
            removed.append(_remove(filesystem, _COMMITS, path))
    if not offsets:
        _empty(filesystem, inside)
    return removed


def _empty(filesystem: pafs.FileSystem, inside: str) -> None:
    """Spark begins with batch 0 only where these folders are empty: one that died in that batch may have left files under other names."""
    for folder in (_OFFSETS, _COMMITS, _STATE):
        filesystem.delete_dir_contents(f"{inside}/{folder}", missing_dir_ok=True)


def _remove(filesystem: pafs.FileSystem, folder: str, path: str) -> str:
    """Remove a file, and its checksum if it has one; gives its name in the checkpoint."""
    above, _, name = path.rpartition("/")
    filesystem.delete_file(path)
    checksum = f"{above}/.{name}.crc"
    if filesystem.get_file_info(checksum).type == pafs.FileType.File:
        filesystem.delete_file(checksum)
    return f"{folder}/{name}"


def _entry(filesystem: pafs.FileSystem, offsets: str) -> int:
    """The entry of the request log that a batch ends with; 0 for a stream of something else."""
    with filesystem.open_input_file(offsets) as file:
        return int(json.loads(file.read().split(b"\n")[-1]).get("entry", 0))


def _is_whole(filesystem: pafs.FileSystem, path: str, lines_min: int, *, versioned: bool) -> bool:
    with filesystem.open_input_file(path) as file:
        lines = file.read().split(b"\n")
    if len(lines) < lines_min:
        return False
    try:
        return all(isinstance(json.loads(line), dict | list) for line in lines[versioned:])
    except ValueError:
        return False
