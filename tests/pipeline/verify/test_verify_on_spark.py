"""`pullsim verify` of a small store: this process finds what tasks of Spark find."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.commands.engine import Engine
from pipeline.main import run
from tests.runs.in_session import pullsim_in
from tests.runs.sampling import sampled
from tests.truth.golden import needs_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TORN = ("torn-bad-size", "torn-cq-behind", "torn-cq-file-missing", "torn-zero-middle-old")


@needs_golden
@pytest.mark.parametrize(("name", "form"), sampled(product(TORN, ("table", "json")), 1))
def test_spark_finds_the_same(
    spark: SparkSession, stores: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, form: str
) -> None:
    words = ("verify", str(stores / name), "--format", form)
    monkeypatch.setattr(Engine, "session", None)
    code = run([*words])
    told = capsys.readouterr().out
    assert code == 1
    assert pullsim_in(spark, monkeypatch, capsys)(*words, "--master", "local[2]")[:2] == (code, told)
