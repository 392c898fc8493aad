"""`pullsim frames` reads files of frames, and writes the same lines with the decoded commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.main import run
from pipeline.requests.frames import run_frames
from pipeline.requests.request_lines import RequestError
from tests.truth.golden import golden, golden_lines, needs_golden
from tests.truth.places import PROJECT

GOOD = "00000019010000150026000001 0000004d000000000000000000000000".replace(" ", "")
REFUSED = "0000000400000000"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@needs_golden
def test_the_recorded_file_comes_out_as_it_was_recorded(tmp_path: Path) -> None:
    recorded = list(golden_lines("broker", "frames", "frames.jsonl"))
    asked = tmp_path / "frames.jsonl"
    asked.write_text("".join(json.dumps({name: row[name] for name in row if name != "decoded"}) + "\n" for row in recorded), "utf-8")
    assert run(["frames", str(asked), "--out", str(tmp_path / "out")]) == 0
    assert lines(tmp_path / "out") == recorded


def test_a_refused_frame_tells_the_exception_and_the_byte(tmp_path: Path) -> None:
    asked = tmp_path / "frames.jsonl"
    asked.write_text(json.dumps({"name": "a", "frameHex": REFUSED, "x": [1]}) + "\n\n" + json.dumps({"frameHex": GOOD}) + "\n", "utf-8")
    done = run_frames(str(asked), str(tmp_path / "out"))
    first, second = lines(tmp_path / "out")
    assert (done.frames, done.refused) == (2, 1)
    assert (first["name"], first["x"], first["decoded"]) == ("a", [1], {"error": "NullPointerException"})
    assert first["error"] == "frame, byte 8: expected a JSON object, found ''"
    assert "error" not in second
    assert isinstance(second["decoded"], dict)
    assert (second["decoded"]["code"], second["decoded"]["opaque"]) == (38, 77)


@pytest.mark.parametrize("hex_text", ["", "00", "000000", "00000019", GOOD[:-2], GOOD + "00", "ffffffff", "7fffffff00"])
def test_a_length_that_is_not_that_of_the_frame_is_refused(tmp_path: Path, hex_text: str) -> None:
    asked = tmp_path / "frames.jsonl"
    asked.write_text(json.dumps({"frameHex": hex_text}), "utf-8")
    assert run_frames(str(asked), str(tmp_path / "out")).refused == 1


@pytest.mark.parametrize(
    "bad",
    ["{", "[]", "1", '{"name":"x"}', '{"frameHex":1}', '{"frameHex":null}', '{"frameHex":"0"}', '{"frameHex":"zz"}', "\x00", "[" * 100_000],
)
def test_a_line_that_is_no_frame_ends_with_2_before_anything_is_written(
    tmp_path: Path, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, out = tmp_path / "frames.jsonl", tmp_path / "out"
    asked.write_text(json.dumps({"frameHex": GOOD}) + "\n" + bad + "\n", "utf-8")
    out.write_text("as it was", "utf-8")
    assert run(["frames", str(asked), "--out", str(out)]) == 2
    assert f"{asked}, line 2: expected" in capsys.readouterr().err
    assert out.read_text("utf-8") == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["frames.jsonl", "out"]


def test_a_file_that_is_not_there_or_empty_and_a_folder_that_is_not_there_end_with_2(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n", "utf-8")
    frame = tmp_path / "frame"
    frame.write_text(json.dumps({"frameHex": GOOD}), "utf-8")
    for asked, out, said in (
        (tmp_path / "none", tmp_path / "out", "a file of frames, found No such file or directory"),
        (empty, tmp_path / "out", "at least one frame, found an empty file"),
        (frame, tmp_path / "none" / "out", "a file in a folder that can be written, found No such file or directory"),
        (frame, tmp_path, "a file, found a folder"),
    ):
        with pytest.raises(RequestError, match=f"expected {said}"):
            run_frames(str(asked), str(out))
        assert run(["frames", str(asked), "--out", str(out)]) == 2
    assert not (tmp_path / "out").exists()


@needs_golden
def test_the_command_runs_without_spark(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pipeline.main import run\n"
        f"assert run(['frames', {str(golden('broker', 'frames', 'frames.jsonl'))!r}, '--out', {str(tmp_path / 'out')!r}]) == 0\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=PROJECT)
