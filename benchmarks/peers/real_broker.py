"""The first of the peers: the real broker, started on the store from which a replay's tables were imported.

Its store is asked in its own process, by getMessage on one thread, and its port by the real remoting client in another process. What that
takes is looked for beside the project (`../shared/oracle` brings the jars); where it is missing the figures say so.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.made.pulls import MAX_MSG_NUMS, SAMPLE_PARTS, Given, PulledStore, Pulls
from benchmarks.made.synthetic_store import TOPIC_PREFIX
from pipeline.settings.settings import BrokerSettings
from store_format.layout import CQ_STORE_UNIT_SIZE

ORACLE = Path(__file__).resolve().parents[3] / "shared" / "oracle"
_SOURCE = Path(__file__).with_name("java") / "RealPulls.java"
_MAIN = _SOURCE.stem
_SECONDS = 2.0  # of a run
_JARS_SECONDS, _ANSWER_SECONDS = 600, 180
_OPENED = ("java.nio", "sun.nio.ch", "jdk.internal.ref", "java.util", "java.lang")


class NotMeasuredError(Exception):
    """The real broker cannot be asked here; the message says why."""


class _EndedError(Exception):
    """The broker gave no answer."""


@dataclass(frozen=True, kw_only=True)
class RealAnswers:
    """Pulls a second of the real store and of the real broker over loopback, or why there are none; what the store gave for the sample."""

    of_store: float | str
    of_broker: float | str
    given: Given | None


def real_answers(pulled: PulledStore, asked: Sequence[Pulls]) -> dict[str, RealAnswers]:
    """The real broker's answers to the sample of each kind of pulls, by name. It changes the store, as every start does."""
    if not asked:
        return {}
    try:
        with _running_broker(pulled) as broker:
            return {pulls.name: broker.answers(pulled, pulls) for pulls in asked}
    except NotMeasuredError as error:
        return {pulls.name: RealAnswers(of_store=str(error), of_broker=str(error), given=None) for pulls in asked}


@dataclass(frozen=True, kw_only=True)
class _Broker:
    """A running broker, and how to start a client of it."""

    process: subprocess.Popen[str]
    java: list[str]
    port: int

    def answers(self, pulled: PulledStore, pulls: Pulls) -> RealAnswers:
        """Both rates for the sample."""
        sample = pulled.stand.folder / "sample"
        pulled.sample(pulls).tofile(sample)
        seconds = _SECONDS / min(pulled.stand.scale, SAMPLE_PARTS)
        question = [pulls.filter_type or "", pulls.expression or "*", str(sample), str(seconds), str(pulled.stand.repeats)]
        of_store = _answer(self.process, question)
        of_broker = _client([*self.java, "client", str(self.port), *_names(pulled), *question]) if pulls.loopback else {}
        return RealAnswers(
            of_store=statistics.median(of_store["pullsPerSecond"]),
            of_broker=statistics.median(of_broker["pullsPerSecond"]) if of_broker else "not asked",
            given=Given(messages=of_store["messages"], bytes=of_store["bytes"], next_offsets=of_store["nextOffsets"]),
        )


def _names(pulled: PulledStore) -> list[str]:
    return [TOPIC_PREFIX, str(pulled.shape.queues), str(MAX_MSG_NUMS)]


@contextmanager
def _running_broker(pulled: PulledStore) -> Iterator[_Broker]:
    java = _compiled(pulled.stand.folder / "java")
    shape, memory = pulled.shape, BrokerSettings.from_sources().pull_settings().total_physical_memory_size
    sizes = [shape.log_file_bytes, shape.queue_file_entries * CQ_STORE_UNIT_SIZE, memory]
    command = [*java, "broker", str(pulled.store), *map(str, sizes), *_names(pulled)]
    errors = pulled.stand.folder / "broker.err"
    pipe = subprocess.PIPE
    with errors.open("wb") as log, subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True) as process:
        try:
            yield _Broker(process=process, java=java, port=_answer(process, None)["port"])
        except _EndedError as error:
            told = errors.read_text("utf-8", "replace").splitlines() or [f"no answer in {_ANSWER_SECONDS} s"]
            raise NotMeasuredError(f"the broker: {told[0]}") from error
        finally:
            process.kill()


def _answer(process: subprocess.Popen[str], question: Sequence[str] | None) -> dict[str, Any]:
    """The line of JSON that the broker writes, by itself or to a question; it is killed when that takes too long."""
    assert process.stdin is not None
    assert process.stdout is not None
    limit = threading.Timer(_ANSWER_SECONDS, process.kill)
    limit.start()
    try:
        if question is not None:
            with suppress(BrokenPipeError):  # an end of the broker shows below
                process.stdin.write("\t".join(question) + "\n")
                process.stdin.flush()
        line = process.stdout.readline()
    finally:
        limit.cancel()
    if not line:
        raise _EndedError
    answer: dict[str, Any] = json.loads(line)
    return answer


def _client(command: Sequence[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(_output(command, _ANSWER_SECONDS, "the client of the broker"))
    return answer


def _compiled(classes: Path) -> list[str]:
    """The command that runs our class with the broker's jars.

    Raises:
        NotMeasuredError: something is missing.
    """
    if not (ORACLE / "oracle").is_file():
        raise NotMeasuredError("the folder shared/oracle beside the project is missing")
    for name in ("java", "javac"):
        if shutil.which(name) is None:
            raise NotMeasuredError(f"{name} is missing")
    cache = _output([str(ORACLE / "oracle"), "jars"], _JARS_SECONDS, "fetching the broker's jars").strip()
    jars = Path(os.environ.get("ORACLE_LIB") or f"{cache}/lib-4.9.3")
    classes.mkdir(exist_ok=True)
    compiler = ["javac", "-nowarn", "-XDignore.symbol.file", "-cp", f"{jars}/*", "-sourcepath", str(ORACLE / "java"), "-d", str(classes)]
    _output([*compiler, str(_SOURCE)], _JARS_SECONDS, "compiling")
    opened = [word for package in _OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
    quiet = [f"-Duser.home={classes}", "-Drocketmq.client.logUseSlf4j=true"]
    return ["java", "-Xmx2g", *opened, *quiet, "-cp", f"{classes}:{ORACLE / 'java'}:{jars}/*", _MAIN]


def _output(command: Sequence[str], seconds: float, what: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds).stdout
    except subprocess.CalledProcessError as error:
        told = (error.stderr or error.stdout or "").strip().splitlines() or [f"exit code {error.returncode}"]
        raise NotMeasuredError(f"{what} failed: {told[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise NotMeasuredError(f"{what} took more than {seconds} s") from error
