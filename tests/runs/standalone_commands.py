"""Commands that run on a standalone cluster, and what they leave in their folder, to be compared with what they leave on one machine."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.main import run as run_here
from tests.makers.captured_connections import pull
from tests.runs.left_rows import left_rows
from tests.truth.places import PROJECT

MESSAGES, LINES = 40_000, 6_000
SIZES = ("mappedFileSizeCommitLog=4194304", "mappedFileSizeConsumeQueue=60000", "maxHashSlotNum=5000", "maxIndexNum=20000")
NAMES = ("import", "replay", "replay to a file", "export", "stream", "follow")
# the commands that fill a lake of their own; the others need an imported lake
FILLING = ("import", "follow")


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands on a store, and where they read and write."""

    store: Path
    requests: Path
    folder: Path

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def answers(self) -> Path:
        return self.folder / "answers.jsonl"

    def of(self, name: str) -> list[str]:
        """The arguments of a command."""
        lake, one_file = ["--lake", str(self.lake)], ["--requests", str(self.requests / "all.jsonl")]
        once = ["--checkpoint", str(self.folder / "checkpoint"), "--once"]
        filled = ["import", str(self.store), *lake, "--broker-name", "b"]
        return {
            "import": filled,
            "replay": ["replay", *lake, *one_file],
            "replay to a file": ["replay", *lake, *one_file, "--out", str(self.answers)],
            "export": ["export", *lake, str(self.folder / "exported")],
            "stream": ["stream", *lake, "--requests", str(self.requests), *once],
            "follow": [*filled, "--follow", *once],
        }[name]


Undisturbed = Mapping[str, Commands]


def run_undisturbed(folder: Path) -> Undisturbed:
    """Each command, run on one machine in a folder of its own; all read the same generated store."""
    all_commands = {name: Commands(folder / "store", folder / "requests", folder / name) for name in NAMES}
    of_import = all_commands["import"]
    sizes = [word for size in SIZES for word in ("--set", size)]
    assert run_here(["generate", str(of_import.store), "--messages", str(MESSAGES), *sizes]) == 0
    _write_requests(of_import)
    of_import.folder.mkdir()
    _run_in_turn([of_import.of("import")])
    for name in NAMES[1:]:
        stand_in(all_commands, name, all_commands[name].folder)
    _run_in_turn([all_commands[name].of(name) for name in NAMES[1:]])
    assert files_of(all_commands["export"].folder / "exported") == files_of(of_import.store)
    return all_commands


def _run_in_turn(calls: list[list[str]]) -> None:
    call = [sys.executable, "-m", "tests.runs.commands_in_turn", json.dumps(calls)]
    run = subprocess.run(call, cwd=PROJECT, stdout=subprocess.PIPE, text=True, timeout=1800, check=True)
    for command, (code, _, err) in zip(calls, json.loads(run.stdout), strict=True):
        assert code == 0, (command, err)


def _write_requests(commands: Commands) -> None:
    """Requests for random offsets of all queues in one file, and a frame in another one."""
    chance = random.Random(7)
    queues = [(path.parent.name, int(path.name)) for path in sorted(commands.store.glob("consumequeue/*/*"))]
    lines = []
    for _ in range(LINES):
        topic, queue = chance.choice(queues)
        offset = chance.randint(-2, MESSAGES // len(queues) * 2)
        asked = {"group": "g", "topic": topic, "queueId": queue, "offset": offset, "maxMsgNums": chance.choice([1, 32, 64])}
        asked["filter"] = chance.choice([None, {"type": "TAG", "expression": "*"}, {"type": "TAG", "expression": "paid || sent"}])
        lines.append(f"{json.dumps({'request': asked})}\n")
    commands.requests.mkdir()
    (commands.requests / "all.jsonl").write_text("".join(lines), "utf-8")
    # the driver alone answers a small batch of a stream, unless there are frames in it
    frame = {"name": "pull", "serializeType": "JSON", "frameHex": pull(1).hex()}
    (commands.requests / "frame.jsonl").write_text(f"{json.dumps(frame)}\n", "utf-8")


def files_of(folder: Path) -> dict[str, bytes]:
    """Relative path -> content of each file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stand_in(undisturbed: Undisturbed, name: str, folder: Path) -> Commands:
    """The commands for another folder, which is created, with the imported lake for those that need it."""
    of_import = undisturbed["import"]
    folder.mkdir(exist_ok=True)
    if name not in FILLING:
        shutil.copytree(of_import.lake, folder / "lake")
    return Commands(of_import.store, of_import.requests, folder)


def check_left(name: str, commands: Commands, undisturbed: Undisturbed, *, without: Collection[str] = ()) -> None:
    """Check that a command left the same as its undisturbed run; `without` names columns to leave out, as `table.column`."""
    before = undisturbed[name]
    if name == "export":
        assert files_of(commands.folder / "exported") == files_of(before.folder / "exported")
    elif name == "replay to a file":
        assert commands.answers.read_bytes() == before.answers.read_bytes()
    else:
        assert left_rows(commands.lake, without=without) == left_rows(before.lake, without=without)
    assert list(commands.folder.glob(".pullsim-*")) == []


def check_nothing_left(name: str, commands: Commands, undisturbed: Undisturbed) -> None:
    """Check that nothing is visible of a command that failed."""
    if name == "export":
        assert not (commands.folder / "exported").exists()
    elif name == "replay to a file":
        assert not commands.answers.exists()
    elif name in FILLING:
        assert not list((commands.lake / "lake_version").glob("*.parquet"))
    else:
        assert left_rows(commands.lake) == left_rows(undisturbed["import"].lake)
