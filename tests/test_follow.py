"""`pullsim import --follow`: after all batches the tables are those of an import of the store, whatever happened on the way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from following import assert_as_imported
from in_session import pullsim_in
from living_store import LivingStore, stages
from replaying import BROKER
from sampling import slow_proof

if TYPE_CHECKING:
    from in_session import Pullsim
    from pyspark.sql import SparkSession


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.mark.parametrize("batches", [2, pytest.param(1, marks=slow_proof), pytest.param(9, marks=slow_proof)])
def test_what_was_followed_is_what_an_import_gives(
    spark: SparkSession, small_store: Path, tmp_path: Path, pullsim: Pullsim, batches: int
) -> None:
    living, lake = LivingStore(small_store, tmp_path / "store"), tmp_path / "lake"
    offsets = living.record_offsets()
    for number, end in enumerate(stages(offsets, batches)):
        living.cut_at(end, half=37 if number % 2 else 0)
        living.commit_offsets({"TopicTest@group": {"0": number}})
        code, out, err = pullsim("import", living.path, "--lake", lake, "--broker-name", BROKER, "--follow", "--once")
        assert code == 0, err
        assert "imported again" not in out + err
    living.cut_at(offsets[-1])
    living.commit_offsets({"TopicTest@group": {"0": batches - 1}})
    assert_as_imported(spark, pullsim, lake, living.path, tmp_path / "other")
