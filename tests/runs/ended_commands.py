"""Runs commands as processes that a signal or a full disk ends early, and reads what they leave behind."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.runs.killed_streams import lake_versions
from tests.runs.left_rows import left_rows
from tests.truth.places import PROJECT

_SECONDS_MAX = 300


@dataclass(frozen=True, slots=True)
class Place:
    """A folder in which commands work: a lake, what they read, and the outputs that they write."""

    folder: Path

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def copied(self, folder: Path) -> Place:
        """A copy of the place in `folder`, which is removed first."""
        shutil.rmtree(folder, ignore_errors=True)
        return Place(Path(shutil.copytree(self.folder, folder)))

    def left(self) -> dict[str, str]:
        """What readers see, as digests: the lake's versions and the rows of each table, and each output whole."""
        found: dict[str, str] = {}
        if (self.lake / "lake_version" / "_delta_log").is_dir() and (versions := lake_versions(self.lake)):
            found["versions"] = str(len(versions))
            for broker, tables in left_rows(self.lake).items():
                found |= {f"{broker} {name}": self._digest("\n".join(rows).encode()) for name, rows in tables.items()}
        outputs = [path for path in self.out.rglob("*") if path.is_file() and not is_unfinished(path.relative_to(self.out))]
        return found | {str(path.relative_to(self.out)): self._digest(path.read_bytes()) for path in outputs}

    def _digest(self, content: bytes) -> str:
        """A digest without the place's name, which some rows and outputs have, and without the time at which a report was made."""
        return hashlib.sha256(re.sub(rb'"made": ?\d+', b"", content.replace(str(self.folder).encode(), b""))).hexdigest()

    def unfinished(self) -> list[str]:
        """The paths of unfinished outputs, which their names show."""
        return [str(path.relative_to(self.out)) for path in self.out.rglob("*") if is_unfinished(path.relative_to(self.out))]


def is_unfinished(path: Path) -> bool:
    """Whether an output, or a folder of it, has the name of one that is being written."""
    return any(part.startswith(".pullsim-") for part in path.parts)


Call = Callable[[Place], Sequence[str | Path]]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its exit code, negative for a signal, and its stderr."""

    code: int
    err: str


def ended(
    call: Sequence[str | Path], after: float | None = None, by: signal.Signals = signal.SIGKILL, *, under: Sequence[str] = ()
) -> Ended:
    """Run a command of pullsim as a process; it gets a signal after some seconds, if it still runs then."""
    process = start(call, under=under)
    if after is not None:
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, by)
    _, err = process.communicate(timeout=_SECONDS_MAX)
    return Ended(process.returncode, err)


def start(call: Sequence[str | Path], *, under: Sequence[str] = (), told: Path | None = None) -> subprocess.Popen[str]:
    """Start a command of pullsim as a process, in a process group of its own.

    Args:
        call: words of the command.
        under: words of a program that runs it.
        told: file that gets its stderr. Without it stderr is a pipe, which holds 64 KiB: a process that writes more waits for a reader.
    """
    with nullcontext(subprocess.PIPE) if told is None else told.open("w", encoding="utf-8") as stderr:
        return subprocess.Popen(
            [*under, sys.executable, "-m", "pipeline.main", *map(str, call)],
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A command that ran to its end: what readers see before and after it, and the seconds that it took."""

    call: Call
    base: Place
    before: dict[str, str]
    after: dict[str, str]
    seconds: float

    @classmethod
    def of(cls, call: Call, base: Place, folder: Path) -> Whole:
        """Run a command in a copy of the place."""
        place = base.copied(folder)
        before, begun = place.left(), time.monotonic()
        run = ended(call(place))
        assert run.code == 0, run.err
        seconds, after = time.monotonic() - begun, place.left()
        assert after != before
        return cls(call=call, base=base, before=before, after=after, seconds=seconds)


def check_signals(whole: Whole, folder: Path, chance: random.Random, *, count: int) -> dict[str, int]:
    """Run a command `count` times and end it by a signal, at moments over its whole time; check that readers see all of it or nothing.

    Returns how many signals came before its end, and how many after.
    """
    place, found, killed = whole.base.copied(folder), {"before": 0, "after": 0}, False
    for _ in range(count):
        by = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        moment = whole.seconds * (1.05 - chance.random() ** 2)  # most of the work comes late
        run = ended(whole.call(place), moment, by)
        left = place.left()
        assert left in (whole.before, whole.after), (by, moment, run)
        if left == whole.after:
            found["after"] += 1
            place, killed = whole.base.copied(folder), False
            continue
        killed |= run.code in {-signal.SIGKILL, -signal.SIGTERM}
        found["before"] += 1
        assert run.code == -signal.SIGKILL if by == signal.SIGKILL else run.code in {128 + by, -by}, (by, moment, run)
        if by != signal.SIGKILL:
            assert "Traceback" not in run.err, (by, moment, run)
    run = ended(whole.call(place))
    assert run.code == 0, run.err
    assert place.left() == whole.after
    assert killed or place.unfinished() == []  # no command removes the output of a killed process: its writer may still run
    return found
