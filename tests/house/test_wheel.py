"""What is in the wheel: the generated init file of spark-sql, which the repository does not hold."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline.lake import init_file as init
from tests.runs.packaged import build_wheel
from tests.truth.places import PROJECT, tracked

INIT = "pipeline/sql/init.sql"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel")))


def test_a_wheel_has_the_init_file_once_and_as_the_sources_make_it(wheel: zipfile.ZipFile) -> None:
    assert [name for name in wheel.namelist() if "init.sql" in name] == [INIT]
    assert wheel.read(INIT).decode("utf-8") == init.init_sql()


def test_the_repository_does_not_hold_the_init_file() -> None:
    assert PROJECT / INIT not in tracked()


def test_the_init_file_is_made_without_spark() -> None:
    script = (
        "import sys\nfrom pipeline.lake.init_file import init_sql\nassert init_sql()\n"
        "print({'pyspark', 'pandas', 'pyarrow', 'delta'} & {name.partition('.')[0] for name in sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (run.stdout.strip(), run.stderr) == ("set()", "")


@pytest.mark.parametrize("before", [None, "outdated"])
def test_an_init_file_that_is_missing_or_outdated_is_written(before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sql").mkdir()
    path = tmp_path / "sql" / "init.sql"
    if before is not None:
        path.write_text(before, "utf-8")
    text = init.init_sql()
    monkeypatch.setattr(init, "init_sql", lambda: text)
    monkeypatch.setattr(init, "files", lambda _: tmp_path)
    assert init.init_file() == path
    assert path.read_text("utf-8") == text
    assert [one.name for one in path.parent.iterdir()] == ["init.sql"]
    written = path.stat().st_mtime_ns
    assert init.init_file().stat().st_mtime_ns == written, "a current file is left alone"


def test_where_the_init_file_cannot_be_written_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = init.init_sql()
    monkeypatch.setattr(init, "init_sql", lambda: text)
    monkeypatch.setattr(init, "files", lambda _: tmp_path / "pullsim.zip")
    with pytest.raises(init.InitFileError, match=r"init\.sql: cannot be written .*; use a pullsim that is installed from a wheel"):
        init.init_file()
