"""The log of the requests that a stream has read from a folder: the files of a batch, and what stays the same when it is read again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pipeline.requests.request_source import lines_of_chunk
from pipeline.stream import request_log
from pipeline.stream.request_log import PlannedFile, RequestLog, list_requests

ALL = 1000
NEVER = 0


class Folder:
    """A folder of requests and a log beside it, opened anew for every batch."""

    def __init__(self, root: Path) -> None:
        self.incoming, self.log, self.clock = root / "incoming", root / "log", 0
        self.incoming.mkdir()

    def put(self, name: str, text: str = "") -> None:
        self.clock += 1
        path = self.incoming / name
        path.write_text(text or f"requests of {name}\n")
        os.utime(path, ns=(self.clock, self.clock))

    def opened(self) -> RequestLog:
        return RequestLog(str(self.log))

    def plan(self, files_max: int = ALL) -> int:
        return self.opened().plan(list_requests(str(self.incoming)), files_max)

    def batch(self, number: int) -> list[str]:
        return [self.told(planned) for planned in self.opened().files(number)]

    def told(self, planned: PlannedFile) -> str:
        name = os.path.basename(planned.file.path)
        return f"{name} {'cannot be read' if planned.problem else f'{len(planned.chunks)} chunks'}"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_files_come_once_oldest_first(folder: Folder) -> None:
    assert folder.plan() == NEVER
    for name in ("c", "a", "b", "_unfinished", ".hidden"):
        folder.put(name)
    (folder.incoming / "below").mkdir()
    assert [folder.plan(2), folder.plan(2), folder.plan(2)] == [1, 2, 2]
    assert (folder.batch(1), folder.batch(2)) == (["c 1 chunks", "a 1 chunks"], ["b 1 chunks"])


def test_a_content_comes_once_whatever_its_name(folder: Folder) -> None:
    folder.put("a", "x\n")
    folder.put("b", "x\n")
    assert folder.plan() == 1
    folder.put("c", "x\n")
    os.utime(folder.incoming / "a", ns=(99, 99))
    assert folder.plan() == 2
    assert folder.batch(1) == ["a 1 chunks", "b 0 chunks"]
    assert folder.batch(2) == ["c 0 chunks", "a 0 chunks"]
    assert folder.plan() == 2


def test_a_rewritten_file_comes_again(folder: Folder) -> None:
    folder.put("a", "x\n")
    assert folder.plan() == 1
    folder.put("a", "x\ny\n")
    assert folder.plan() == 2
    assert folder.batch(2) == ["a 1 chunks"]


def test_a_log_of_a_version_that_kept_no_checksums_is_read(folder: Folder) -> None:
    folder.put("a")
    folder.plan()
    [path] = folder.log.glob("*.json")
    [planned] = json.loads(path.read_text(encoding="utf-8"))
    kept = ("start", "end", "first_line", "row_group")
    planned["chunks"] = [{name: chunk[name] for name in kept} for chunk in planned["chunks"]]
    path.write_text(json.dumps([planned]), encoding="utf-8")
    [found] = folder.opened().files(1)
    [chunk] = found.chunks
    assert lines_of_chunk(found.file.path, chunk) == (1, 0, b"requests of a\n")


def test_a_batch_is_the_same_when_it_is_asked_for_again(folder: Folder) -> None:
    folder.put("a")
    folder.plan()
    first = folder.opened().files(1)
    folder.put("b")
    assert folder.plan() == 2
    assert folder.opened().files(1) == first


def test_a_file_that_changes_before_it_is_answered_is_planned_anew(folder: Folder) -> None:
    folder.put("a", "x\n")
    folder.put("copy", "x\n")
    folder.put("gone")
    folder.plan()
    planned = folder.opened().entry(1)
    folder.put("a", "y\n")
    (folder.incoming / "gone").unlink()
    # the copy gives now what the rewritten file no longer does
    assert folder.batch(1) == ["a 1 chunks", "copy 1 chunks", "gone cannot be read"]
    assert folder.opened().entry(1)[0].sha256 != planned[0].sha256
    assert folder.plan() == 1


def test_a_file_that_changes_after_its_answers_gives_what_is_new_and_its_former_content_stays_known(folder: Folder) -> None:
    folder.put("a", "x\n")
    folder.put("same", "z\n")
    folder.plan()
    folder.put("a", "y\n")
    log = RequestLog(str(folder.log), answered=1)
    assert [folder.told(planned) for planned in log.files(1)] == ["a 1 chunks", "same 1 chunks"]
    folder.put("copy", "x\n")
    assert log.plan(list_requests(str(folder.incoming)), ALL) == 2
    assert [folder.told(planned) for planned in log.files(2)] == ["copy 0 chunks"]


def test_what_was_read_is_summed_up(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "_SUMMED_UP", 3)
    monkeypatch.setattr(request_log, "_KEPT", 6)
    for number in range(20):
        folder.put(f"{number}")
        assert folder.plan() == number + 1
    files = {path.name for path in folder.log.iterdir()}
    assert len(files) < 14
    for number in range(20):
        folder.put(f"copy of {number}", f"requests of {number}\n")
    assert folder.plan() == 21
    assert sorted(folder.batch(21)) == sorted(f"copy of {number} 0 chunks" for number in range(20))
    assert folder.batch(20) == ["19 1 chunks"]


def test_an_unfinished_entry_is_none(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("a")
    folder.plan()
    (folder.log / f".{2:020d}.json").write_text("[{")
    folder.put("b")
    assert folder.plan() == 2
    assert folder.batch(2) == ["b 1 chunks"]


def test_a_link_that_leaves_the_folder_is_not_followed(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret\n")
    folder.put("a", "x\n")
    for name, target in {"out": tmp_path / "secret", "up": Path("../secret"), "within": Path("a"), "nowhere": tmp_path / "none"}.items():
        (folder.incoming / name).symlink_to(target)
    assert folder.plan() == 1
    entry = {os.path.basename(planned.file.path): planned for planned in folder.opened().entry(1)}
    assert entry.keys() == {"a", "out", "up", "within"}
    for name in ("out", "up"):
        assert (entry[name].sha256, entry[name].chunks) == ("", ())
        assert str(entry[name].problem).endswith(
            f"{name}, line 1: expected a file inside the folder of requests, found a link to {tmp_path / 'secret'}; "
            "copy the file into the folder"
        )
    assert sorted(len(entry[name].chunks) for name in ("a", "within")) == [0, 1]


def test_a_folder_may_be_a_link_itself(folder: Folder, tmp_path: Path) -> None:
    folder.put("a", "x\n")
    (tmp_path / "linked").symlink_to(folder.incoming)
    assert folder.opened().plan(list_requests(str(tmp_path / "linked")), ALL) == 1
    assert folder.batch(1) == ["a 1 chunks"]


def test_large_files_come_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "BATCH_BYTES", 30)
    for name in ("a", "b", "c"):
        folder.put(name)
    folder.put("large", "x" * 100 + "\n")
    assert [folder.plan(), folder.plan(), folder.plan()] == [1, 2, 3]
    assert folder.batch(1) == ["a 1 chunks", "b 1 chunks"]
    monkeypatch.setattr("pipeline.requests.request_file.LINE_BYTES_MAX", 10)
    folder.put("too long", "y" * 100)
    assert folder.plan() == 4
    assert folder.batch(4) == ["too long cannot be read"]
