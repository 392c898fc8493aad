"""The message when the engine fails has the cause, however long the stacks before it are."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.commands.engine import Engine
from pipeline.lake.lake import LakeError
from pipeline.main import judged

STACK = "\n".join(f"\tat org.example.Task.step{number}(Task.scala:{number})" for number in range(300))


def test_the_causes_of_a_long_failure_stand_behind_its_begin() -> None:
    message = f"cannot commit\n{STACK}\nCaused by: a: upload failed\n{STACK}\nCaused by: b: wrong class {'x' * 5000}\n{STACK}"
    code, text = judged(RuntimeError(message))
    first, *_, upload, wrong = text.splitlines()
    assert (code, first) == (3, "the engine failed: RuntimeError: cannot commit")
    assert upload == "Caused by: a: upload failed"
    assert wrong.startswith("Caused by: b: wrong class xxx")
    assert len(text) < 6000


def test_a_short_failure_is_said_whole() -> None:
    assert judged(RuntimeError("gone\nCaused by: much"))[1] == "the engine failed: RuntimeError: gone\nCaused by: much"


@pytest.mark.parametrize("uri", ["", "file://"])
def test_spark_is_not_started_for_a_lake_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setattr("pipeline.lake.session.build_session", lambda **_: pytest.fail("Spark was started"))
    (tmp_path / "commit_log").mkdir()
    expected = f"{tmp_path}: expected a lake, found no table lake_version"
    with pytest.raises(LakeError, match=expected), Engine().session(reads=f"{uri}{tmp_path}"):
        pass
    (tmp_path / "lake_version").mkdir()
    with pytest.raises(pytest.fail.Exception, match="Spark was started"), Engine().session(reads=f"{uri}{tmp_path}"):
        pass
