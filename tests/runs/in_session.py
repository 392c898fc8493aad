"""Runs commands of pullsim in the session of the tests, so that no command starts Spark again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.commands.engine import Engine
from pipeline.main import run

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

# options with which Spark does small work that the driver would do alone
ON_SPARK = ("--conf", "spark.ui.enabled=false")
# arguments -> exit code, stdout, stderr
Pullsim = Callable[..., tuple[int, str, str]]


class NotHeard:
    """Takes the place of capsys in fixtures of a module: it captures nothing."""

    def readouterr(self) -> tuple[str, str]:
        """Nothing."""
        return "", ""


def bare_session(spark: SparkSession) -> SparkSession:
    """A session of the same JVM without views and functions, as a command's session begins."""
    return spark.newSession()


def session_with_views(spark: SparkSession, lake: Path) -> SparkSession:
    """A session of the same JVM with all tables, views and functions of a lake, which stay there from test to test."""
    from pipeline.lake.lake import Lake
    from pipeline.lake.views import create_views

    return create_views(Lake(bare_session(spark), str(lake)).require())


def pullsim_in(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str] | NotHeard) -> Pullsim:
    """A function that runs the command line on an existing session, which stays open."""

    @contextmanager
    def same_session(_engine: Engine, *_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(Engine, "session", same_session)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return call
