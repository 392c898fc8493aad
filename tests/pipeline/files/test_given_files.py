"""The names on a command line are checked before Spark starts: a wrong name ends with 2 and a sentence, without a start of Spark."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pipeline.commands.cli import cli
from pipeline.commands.engine import given_uris
from pipeline.files import given_files
from pipeline.files.given_files import GivenFileError, require_input, require_output, require_scheme
from pipeline.lake import driver_start, session
from pipeline.main import run
from pipeline.schema.tables import LAKE_VERSION


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that passes for a lake; a start of Spark fails the test."""

    def no_spark(**_options: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr(session, "build_session", no_spark)
    (tmp_path / "lake" / LAKE_VERSION.name).mkdir(parents=True)
    (tmp_path / "there").write_text("")
    return tmp_path / "lake"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("replay", "--requests", "absent.jsonl"), "--requests absent.jsonl: expected a file, found no such file"),
        (("replay", "--requests", "."), "--requests .: expected a file, found a folder"),
        (
            ("replay", "--requests", "there", "--out", "no/out.jsonl"),
            "--out no/out.jsonl: expected a folder that holds the file, found none",
        ),
        (("replay", "--requests", "there", "--out", "lake"), "--out lake: expected a file, or a name for a new one, found a folder"),
        (("whatif", "--requests", "absent.jsonl", "--set", "brokerId=1"), "--requests absent.jsonl: expected a file"),
        (("requests", "--out", "no/pulls.jsonl"), "--out no/pulls.jsonl: expected a folder"),
        (("answer", "--cases", "absent.jsonl", "--out", "out.jsonl"), "--cases absent.jsonl: expected a file"),
        (("capture", "absent.pcap"), "FILE absent.pcap: expected a file, found no such file"),
        (("report", "--out", "no/page.html"), "--out no/page.html: expected a folder"),
        (("import", "absent"), "absent: expected the store directory of a broker, found no such directory"),
        (("verify", "absent"), "absent: expected the store directory of a broker, found no such directory"),
        (("replay", "--requests", "http://[bad/pulls"), "--requests http://[bad/pulls: expected a file that can be read, found"),
    ],
)
def test_a_wrong_name_is_told_before_spark_starts(
    words: tuple[str, ...], says: str, lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lake.parent)
    code = run([*words, "--lake", "lake"])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "uris"),
    [
        ("message --lake s3://b/lake --key https://shop/orders/1 --text s3://b/x", {"s3://b/lake": "--lake"}),
        ("replay --lake lake --requests s3://b/r --out hdfs://h/o --broker s3://name", {"s3://b/r": "--requests", "hdfs://h/o": "--out"}),
        ("import s3://b/store --lake lake --checkpoint gs://b/c", {"s3://b/store": "STORE", "gs://b/c": "--checkpoint"}),
        ("stream --lake lake --requests s3://b/r --checkpoint c --metrics s3://b/m", {"s3://b/r": "--requests", "s3://b/m": "--metrics"}),
        ("capture s3://b/x.pcap --lake lake", {"s3://b/x.pcap": "FILE"}),
        ("sql s3://b/x --lake lake --file s3://b/q.sql", {"s3://b/q.sql": "--file"}),
    ],
)
def test_only_values_that_are_paths_are_taken_for_uris(words: str, uris: dict[str, str]) -> None:
    name, *arguments = words.split()
    command = cli.commands[name]
    with command.make_context(name, arguments):
        assert given_uris() == uris


def test_java_is_looked_for_before_spark_starts(lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    home = lake.parent / "java"
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert run(["lag", "--lake", str(lake), "--engine", "spark"]) == 3
    assert f"Spark needs Java 17 or newer, found none in JAVA_HOME={home}; install one" in capsys.readouterr().err
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("")
    (home / "bin" / "java").chmod(0o755)
    assert driver_start.java_fault() is None  # it does not say its version
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="11.0.2"\n')
    assert driver_start.java_fault() == f"version 11 in {home}"
    (home / "release").write_text('JAVA_VERSION="21"\n')
    assert driver_start.java_fault() is None
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(home))
    assert driver_start.java_fault() == "none"


@pytest.mark.skipif(os.getuid() == 0, reason="root may read and write any file")
def test_permissions_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "closed").write_text("")
    (tmp_path / "closed").chmod(0)
    with pytest.raises(GivenFileError, match="without the permission"):
        require_input("--requests", str(tmp_path / "closed"))
    with pytest.raises(GivenFileError, match="without the permission"):
        require_output("--out", str(tmp_path / "closed"))


def test_a_file_of_results_lies_outside_of_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "store" / "config").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "store" / "config")
    for path in (tmp_path / "store" / "checkpoint", tmp_path / "link" / "topics.json", tmp_path / "store" / ".." / "store" / "x"):
        with pytest.raises(GivenFileError, match="expected a file outside of"):
            require_output("--out", str(path), read=str(tmp_path / "store"))
    require_output("--out", str(tmp_path / "store-2"), read=str(tmp_path / "store"))


def test_ctrl_c_ends_with_130_and_one_line(lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(**_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "build_session", interrupted)
    assert run(["lag", "--lake", str(lake), "--engine", "spark"]) == 130
    # an empty line follows the ^C of the terminal
    assert capsys.readouterr().err.splitlines() == ["pullsim: starting Spark", "", "pullsim: stopped"]


def test_a_file_system_that_does_not_answer_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(given_files, "filesystem_of", lambda _: ended.wait(60))
    monkeypatch.setattr(given_files, "_ANSWER_SECONDS", 0.1)
    for check in (require_scheme, require_input):
        with pytest.raises(GivenFileError, match=r"STORE gs://b/store: expected a file system that answers, found no answer for 0.1 s"):
            check("STORE", "gs://b/store")
    ended.set()


def test_the_first_line_of_an_error_of_a_file_system_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise RuntimeError("no credentials\x1b[31m\nand more")

    monkeypatch.setattr(given_files, "filesystem_of", refuse)
    with pytest.raises(GivenFileError, match=r"abfs://c@a/lake: expected a file system that answers, found no credentials\\x1b\[31m; are"):
        require_scheme("--lake", "abfs://c@a/lake")
