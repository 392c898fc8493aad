"""The run that a checkpoint belongs to: written into the checkpoint before its first batch. Repairs a checkpoint after a crash.

Surprise: Spark numbers batches from 0 in every new checkpoint. So the lake identifies a batch by the id of the checkpoint and the number of
the batch. A run that continues in a new or repaired checkpoint gets a new id there, and skips the requests that already have an answer.
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
# subfolders of the checkpoint: Spark's own files, and the request log
SPARK, REQUESTS = "spark", "requests"
_OFFSETS, _COMMITS, _STATE = (f"{SPARK}/{name}" for name in ("offsets", "commits", "state"))
# folder of numbered files -> ending of their names, least number of lines, whether the first line is a version
_NUMBERED = {_OFFSETS: ("", 3, True), _COMMITS: ("", 2, True), REQUESTS: (".json", 1, False)}
# number of the form in which `holding` writes its state
_FORM_OF_STATE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRun:
    """Properties of a run that are the same for all batches of a checkpoint.

    Attributes:
        run_id: id of the run.
        checkpoint: id of the checkpoint.
        lake: path of the lake.
        broker: name of the broker whose store answers.
        source: folder of requests, or name of the table.
        at: which part of the store a request sees.
        settings: settings that were given.
        hold: whether pulls are held.
        store: Delta versions of the imported tables when the checkpoint was begun.
        state: number of the form in which Spark's state keeps held pulls; 0 if pulls are not held.
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
    state: int = 0

    def opened(self, lake: Lake) -> OpenedBroker:
        """The broker whose store answers, in `lake` at the lake's present version."""
        return OpenedBroker(lake, self.broker)

    def replay_run(self, lake: Lake, settings: BrokerSettings, started: dt.datetime) -> ReplayRun:
        """The run as a row of replay_run describes it; `started` is the start of its first batch."""
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
    """The Delta versions of the imported tables, from which answers are made."""
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
    """The run of the checkpoint in `folder`, and the incomplete files that were removed from the checkpoint.

    If there is no checkpoint, a new one is begun. `run_id` None stands for the checkpoint's run, or for a new one.

    Raises:
        LakeError: the checkpoint belongs to another stream (the message names the difference), or cannot be opened.
    """
    wanted: dict[str, Any] = {"lake": lake, "broker": broker, "source": source, "at": at, "settings": settings, "hold": hold}
    wanted["state"] = _FORM_OF_STATE if hold else 0
    try:
        filesystem, inside = filesystem_of(folder)
        filesystem.create_dir(inside, recursive=True)
        known = _known(filesystem, f"{inside}/{_NAME}")
        if known is None:
            removed = []
            run = StreamRun(run_id=run_id or uuid.uuid4().hex, checkpoint=uuid.uuid4().hex, store=store or {}, **wanted)
        else:
            _require_same(folder, known, wanted | ({} if run_id is None else {"run_id": run_id}))
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


def repeated_batch(checkpoint: str) -> tuple[int, int] | None:
    """The batch that Spark has begun but not recorded as ended: its number and its newest request log entry; None if there is none."""
    filesystem, inside = filesystem_of(checkpoint)
    offsets = numbered_files(filesystem, f"{inside}/{_OFFSETS}")
    newest = max(offsets, default=-1)
    if newest <= max(numbered_files(filesystem, f"{inside}/{_COMMITS}"), default=-1):
        return None
    return newest, _entry(filesystem, offsets[newest])


def _require_same(folder: str, known: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        if known.get(name) != value:
            raise LakeError(
                f"{folder}: expected the checkpoint of a stream with {name} {value!r}, found one with {known.get(name)!r}; "
                "give another --checkpoint"
            )


def _known(filesystem: pafs.FileSystem, path: str) -> dict[str, Any] | None:
    try:
        return {"hold": False, "state": 0} | dict(read_json(filesystem, path))  # a checkpoint of an older release has neither
    except FileNotFoundError:
        return None


def _mend(filesystem: pafs.FileSystem, inside: str) -> list[str]:
    """Remove the newest file of each folder if it is incomplete, and files that depend on it; their contents are recomputed.

    Returns:
        The names of the removed files.
    """
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
        if number > max(offsets, default=-1):  # else Spark reports a concurrent stream when it commits this batch
            removed.append(_remove(filesystem, _COMMITS, path))
    if not offsets:
        _empty(filesystem, inside)
    return removed


def _empty(filesystem: pafs.FileSystem, inside: str) -> None:
    """Empty Spark's folders, so that it begins with batch 0; a crash in batch 0 may have left files with other names."""
    for folder in (_OFFSETS, _COMMITS, _STATE):
        filesystem.delete_dir_contents(f"{inside}/{folder}", missing_dir_ok=True)


def _remove(filesystem: pafs.FileSystem, folder: str, path: str) -> str:
    """Remove a file and its checksum file, if any; gives the file's name in the checkpoint."""
    above, _, name = path.rpartition("/")
    filesystem.delete_file(path)
    checksum = f"{above}/.{name}.crc"
    if filesystem.get_file_info(checksum).type == pafs.FileType.File:
        filesystem.delete_file(checksum)
    return f"{folder}/{name}"


def _entry(filesystem: pafs.FileSystem, offsets: str) -> int:
    """The last request log entry of a batch, from Spark's offset file; 0 for a stream with another source."""
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
