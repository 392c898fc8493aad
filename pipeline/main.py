"""Entry point of the console script and of spark-submit: runs the command line and turns errors into exit codes.

0 done, 1 done but found differences, findings of verify, or lag of --min-lag, 2 bad usage or bad input, 3 the engine failed, 130 ended by
Ctrl-C.
"""

from __future__ import annotations

import _thread
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

if __package__ in {None, ""}:  # spark-submit runs this file by its path: the folder above holds the packages
    _HERE = os.path.dirname(os.path.realpath(__file__))  # if the path is a link, Python puts the folder of its target on sys.path
    sys.path[:] = [os.path.dirname(_HERE), *(path for path in sys.path if os.path.realpath(path or ".") != _HERE)]

_IS_PROGRAM = __package__ in {None, ""} or __name__ == "__main__" or os.path.basename(sys.argv[0]) == "pullsim"
if _IS_PROGRAM and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # the imports take half a second, in which Ctrl-C would show a stack of Python; `main` restores the handler
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import click

from pipeline.commands import (  # noqa: F401 (they add their commands)
    answer_commands,
    capture_commands,
    file_commands,
    import_commands,
    lag_commands,
    lake_commands,
    listing_commands,
    question_commands,
    replay_commands,
    report_commands,
    retention_commands,
    simulate_commands,
    sql_commands,
    store_commands,
    stream_commands,
    upgrade_commands,
)
from pipeline.commands.cli import cli
from pipeline.progress_line import progress_line
from pipeline.terminal import ReaderGoneError, progress_to_stderr
from store_format.errors import UnusableInputError, quoted_error

# a line about a full disk in an error of Java, of Python or of Arrow
_NO_SPACE = re.compile(r"[^\n]{0,300}No space left on device[^\n]{0,300}|[^\n]{0,300}Disk quota exceeded[^\n]{0,300}")

# a file that the system does not let this process create or open, in errors of Java, of Python and of Hadoop
_REFUSED_FILE = re.compile(
    r"(?:file:)?/[^\n(:']{1,1000} \((?:Read-only file system|Permission denied)\)"
    r"|\[Errno (?:13|30)\] [^\n:]{1,100}: '[^\n']{1,1000}'"
    r"|Mkdirs failed to create [^\n]{1,300}"
)

# rows that are lost because all executors that kept them have ended; Spark cannot compute them again
_LOST_ROWS = re.compile(r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|Checkpoint block rdd_\d+_\d+ not found")

# the number of standard error, the last of the three standard files
_STANDARD_ERROR = 2
# exit code after Ctrl-C
_STOPPED = 130
# file name of Python's import machinery; a Ctrl-C inside it is raised again after this many seconds
_IMPORTER, _AGAIN_SECONDS = "<frozen importlib._bootstrap>", 0.01
# errors of Hadoop about s3:// if the jar that opens it is missing
_NO_S3A = re.compile(r"Class org\.apache\.hadoop\.fs\.s3a\.\w+ not found|No FileSystem for scheme \"s3a?\"")

# the plan of a query, which Spark adds to its message; a view's has hundreds of lines
_PLAN = re.compile(r";\n'?[A-Z]\w+.*", re.DOTALL)
# limits when an engine's message is shortened: characters of its begin, characters of each cause, number of causes
_SHOWN_MAX, _CAUSE_MAX, _CAUSES_MAX = 4000, 1000, 5
_CAUSE = re.compile(r"^\s*Caused by: .*", re.MULTILINE)

# conditions of Spark that say what is wrong with the data, or with the user's SQL
_FOUND_WHILE_RUNNING = {"USER_RAISED_EXCEPTION", "CAST_INVALID_INPUT", "CAST_OVERFLOW", "INVALID_ARRAY_INDEX", "DIVIDE_BY_ZERO"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _keep_standard_numbers()
    if sys.stdout is None:
        progress_to_stderr("error: expected a standard output that takes the results, found a closed one; drop them with >/dev/null")
        sys.exit(2)
    code = run(arguments)
    if code == _STOPPED:
        sys.unraisablehook = _tell_nothing
    sys.exit(code)


def _keep_standard_numbers() -> None:
    """Open the null device in place of closed standard files: else a file of the lake gets the number to which others print."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(number)
    # Python has None for a file that was closed when it started
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115 (both stay open until the end)
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Note each Ctrl-C during the block. Ctrl-C also ends the JVM, so that the error may be about the lost connection to it."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        if frame is not None and frame.f_code.co_filename == _IMPORTER:
            # an error inside the import machinery may leave the import lock taken; other threads would then wait forever
            threading.Timer(_AGAIN_SECONDS, _thread.interrupt_main).start()
            return
        raise KeyboardInterrupt

    is_default = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    told = sys.unraisablehook
    try:
        with _interrupts() as interrupts:
            return _run(arguments, interrupts)
    finally:
        sys.unraisablehook = told


def _run(arguments: Sequence[str] | None, interrupts: list[int]) -> int:
    try:
        with progress_line():
            cli.main(args=list(sys.argv[1:] if arguments is None else arguments), prog_name="pullsim", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):  # Ctrl-C
        sys.unraisablehook = _tell_nothing
        progress_to_stderr("stopped")
        return _STOPPED
    except ReaderGoneError:  # for example `head` has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except click.ClickException as error:
        error.show()
        return 2
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except Exception as error:
        code, text = (_STOPPED, "stopped") if interrupts else judged(error)
        progress_to_stderr(text)
        return code
    return 0


def _tell_nothing(_: object) -> None:
    """Ignore errors in the destructors of objects that Ctrl-C left half made."""


def judged(error: BaseException) -> tuple[int, str]:
    """Return the exit code, 2 for the user's fault and 3 for the engine's, and the message of an error."""
    if isinstance(error, UnusableInputError):
        return 2, f"error: {_shortened(str(error))}"
    if isinstance(error, MemoryError):
        return 3, "the engine failed: this machine has too little free memory; free some and start this again, what was committed counts"
    from pyspark.errors import (  # takes long
        AnalysisException,
        ArithmeticException,
        DateTimeException,
        NumberFormatException,
        ParseException,
        SparkRuntimeException,
    )

    from pipeline.delta.damaged_files import damaged_file

    if (quoted := quoted_error(str(error))) is not None:
        return 2, f"error: {_shortened(quoted)}"
    if _NO_S3A.search(str(error)):
        return 3, "the engine failed: Spark has no jar that opens s3://; give it the packages that docs/cluster.md names for S3"
    if isinstance(error, AnalysisException | ParseException | ArithmeticException | NumberFormatException | DateTimeException):
        return 2, f"error: {_PLAN.sub('', str(error))}"
    if isinstance(error, SparkRuntimeException) and error.getCondition() in _FOUND_WHILE_RUNNING:
        return 2, f"error: {(error.getMessageParameters() or {}).get('errorMessage') or error}"
    if damaged := damaged_file(str(error)):
        return 2, f"error: {damaged}"
    if _LOST_ROWS.search(str(error)):
        return 3, "the engine failed: executors ended that kept rows of this run; start it again, nothing counts that was not committed"
    if full := _said(error, _NO_SPACE):
        return 3, f"the engine failed: a disk is full ({full}); make room and start this again, nothing counts that was not committed"
    if refused := _said(error, _REFUSED_FILE):
        return 2, f"error: expected files that this process may read and write, found {refused}; nothing counts that was not committed"
    if os.environ.get("PULLSIM_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    return 3, f"the engine failed: {type(error).__name__}: {_shortened(str(error))}"


def _shortened(message: str) -> str:
    """Return the begin of a long message, and its last lines that name a cause: why Spark failed comes last, after all stacks."""
    if len(message) <= _SHOWN_MAX:
        return message
    causes = dict.fromkeys(line.strip()[:_CAUSE_MAX] for line in _CAUSE.findall(message))
    return "\n".join((f"{message[:_SHOWN_MAX]} ...", *list(causes)[-_CAUSES_MAX:]))


def _said(error: BaseException, words: re.Pattern[str]) -> str | None:
    """Return the first text that matches `words` in an error, its causes, or their stack traces from Spark; None if there is none."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if found := words.search(f"{cause}\n{getattr(cause, '_stackTrace', '')}"):
            return found[0].strip(" :")
        cause = getattr(cause, "_cause", None) or cause.__cause__ or cause.__context__
    return None


if __name__ == "__main__":
    main()
