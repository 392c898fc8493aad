"""The exit code of an error says whose fault it is, also if the driver got only the text of a worker's traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from pipeline import main
from pipeline.lake.lake import LakeError
from pipeline.main import judged
from pipeline.requests.request_lines import RequestError
from store_format.errors import EXIT_CODE_NOTE, CorruptStoreError, UnusableInputError
from tests.truth.places import PROJECT


class _UnlistedError(UnusableInputError):
    """An error that no list of the command line names."""


def as_a_worker_tells(error: Exception) -> RuntimeError:
    """The error that the driver raises for an error of a worker: it has only the text of the traceback, within the engine's own words."""
    try:
        raise error
    except type(error) as raised:
        told = "".join(traceback.format_exception(raised))
    return RuntimeError(
        f"Job aborted: Task 3 in stage 7.0 failed 1 times, most recent failure:\n{told}\n\tat org.example.Runner.run(R.scala:1)"
    )


@pytest.mark.parametrize(
    "error",
    [
        CorruptStoreError("store/commitlog", "a message", "zeros", position=7, hint="restore it"),
        RequestError("requests.jsonl", 3, "an object", "none"),
        LakeError("lake: expected a lake, found none"),
        _UnlistedError("input that cannot be used"),
        _UnlistedError("two lines:\nthe second"),
    ],
)
def test_input_that_cannot_be_used_ends_with_2_in_the_driver_and_in_a_worker(error: UnusableInputError) -> None:
    assert judged(error) == (2, f"error: {error}")
    code, text = judged(as_a_worker_tells(error))
    assert (code, text) == (2, f"error: {error}")
    assert EXIT_CODE_NOTE not in text


def test_an_error_of_a_worker_without_the_note_is_the_engines() -> None:
    code, text = judged(as_a_worker_tells(ValueError("negative count")))
    assert code == 3
    assert text.startswith("the engine failed: RuntimeError: Job aborted")


def test_the_note_counts_only_as_a_line_of_its_own() -> None:
    code, _ = judged(as_a_worker_tells(ValueError(f"a message that says {EXIT_CODE_NOTE} within")))
    assert code == 3


@pytest.mark.parametrize("words", ["No space left on device", "Disk quota exceeded"])
def test_a_full_disk_is_named_wherever_the_cause_stands(words: str) -> None:
    error = RuntimeError("Job aborted")
    error.__cause__ = OSError(28, words)
    code, text = judged(error)
    assert code == 3
    assert text.startswith("the engine failed: a disk is full (")
    assert words in text


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (
            "Task 0 failed 1 times (TID 43): java.io.FileNotFoundException: /a/lake/queue/part-0.parquet (Read-only file system)\n\tat x.Y",
            "/a/lake/queue/part-0.parquet (Read-only file system)",
        ),
        ("[Errno 13] Permission denied: '/a/lake/queue'", "[Errno 13] Permission denied: '/a/lake/queue'"),
        (
            "java.io.IOException: Mkdirs failed to create file:/a/lake/queue (exists=false, cwd=file:/a)\n\tat x.Y",
            "Mkdirs failed to create file:/a/lake/queue (exists=false, cwd=file:/a)",
        ),
    ],
)
def test_a_file_that_the_system_refuses_is_named_in_one_sentence(told: str, found: str) -> None:
    """The texts are those of Java, Python and Hadoop."""
    code, text = judged(RuntimeError(told))
    assert (code, len(text.splitlines())) == (2, 1)
    assert f"found {found};" in text


@pytest.mark.parametrize("error", [MemoryError(), pa.ArrowMemoryError("malloc of size 64 failed")])
def test_too_little_memory_is_the_engines_fault_in_one_sentence(error: MemoryError) -> None:
    code, text = judged(error)
    assert (code, len(text.splitlines())) == (3, 1)
    assert text.startswith("the engine failed: this machine has too little free memory;")


def test_rows_that_ended_with_their_executors_are_the_engines_fault_in_one_sentence() -> None:
    """The text is Spark's (4.2.0)."""
    rest = "Either the executor that originally checkpointed this partition is no longer alive, or the original RDD is unpersisted."
    error = RuntimeError(f"[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_12_0 not found!\n{rest}\n\tat x.y(Z.java:1)")
    code, text = judged(error)
    assert (code, len(text.splitlines())) == (3, 1)
    assert "start it again" in text


def test_a_missing_jar_for_s3_is_the_engines_fault_in_one_sentence() -> None:
    """The text is Hadoop's (Configuration.getClass, 3.5.0)."""
    error = RuntimeError("java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found\n\tat x.y(Z.java:1)")
    code, text = judged(error)
    assert (code, len(text.splitlines())) == (3, 1)
    assert "s3://" in text


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["lag", "--help"]])
def test_what_reads_no_file_loads_no_library_that_does(words: list[str]) -> None:
    script = f"import sys; from pipeline.main import run; code = run({words!r})\n"
    script += "print(code, sorted(sys.modules.keys() & {'pyspark', 'pandas', 'pyarrow', 'numpy', 'duckdb', 'deltalake', 'sqlglot'}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0 []", "")


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    "words",
    [
        ["retention", "--rate"],
        ["stream", "--requests", "in", "--checkpoint", "c", "--trigger"],
        ["import", "store", "--follow", "--trigger"],
    ],
    ids=lambda words: words[0],
)
def test_an_option_takes_finite_numbers_only(capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], number: str) -> None:
    assert main.run([*words, number, "--lake", str(tmp_path / "lake")]) == 2
    assert f"Invalid value for '{words[-1]}': expected a finite number, found {number}" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["import", "store"], ["verify", "store"], ["demo"], ["lag"]], ids=lambda words: words[0])
def test_a_lake_without_a_name_is_not_the_current_folder(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main.run([*words, "--lake", ""]) == 2
    assert "Invalid value for '--lake': expected a directory or a URI, found an empty text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("closed", "code", "told"),
    [
        (">&-", 2, "pullsim: error: expected a standard output that takes the results, found a closed one; drop them with >/dev/null\n"),
        ("2>&-", 2, ""),
        ("<&-", 2, "pullsim: error: frames.jsonl, line 1: expected a file of frames, found No such file or directory\n"),
    ],
    ids=["output", "error", "input"],
)
def test_a_closed_standard_file_is_told_or_replaced(tmp_path: Path, closed: str, code: int, told: str) -> None:
    command = f"{sys.executable} {PROJECT / 'pipeline' / 'main.py'} frames frames.jsonl --out out.jsonl {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", told)


def test_a_link_to_the_file_runs_it(tmp_path: Path) -> None:
    """So it is in an image. The folder of main.py has packages with the names of others, such as delta."""
    (tmp_path / "linked.py").symlink_to(PROJECT / "pipeline" / "main.py")
    call = [sys.executable, "linked.py", "import", "none", "--lake", "lake"]
    run = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert "expected the store directory of a broker, found no such directory" in run.stderr


def test_ctrl_c_while_the_program_loads_shows_no_stack(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n")
    script = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv = ['pullsim', '--version']\n"
    script += f"sys.path.insert(0, {str(tmp_path)!r}); from pipeline.main import main; main()"
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_waits_until_python_is_done_with_an_import() -> None:
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        pytest.skip("who runs the tests handles Ctrl-C")
    importing = SimpleNamespace(f_code=SimpleNamespace(co_filename="<frozen importlib._bootstrap>"))
    with main._interrupts() as noted:
        handler = cast("Any", signal.getsignal(signal.SIGINT))
        handler(signal.SIGINT, importing)
        assert noted == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            time.sleep(5)
    assert len(noted) == 2
