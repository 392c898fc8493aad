"""Settings for a while, such as those with which plans are walked: queries have their rows, and the settings are those of before again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pipeline.session import WALKED_PLANS, set_meanwhile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")


def put(spark: SparkSession, values: list[str | None]) -> None:
    for name, value in zip(SETTINGS, values, strict=True):
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def found(spark: SparkSession) -> list[str | None]:
    return [spark.conf.get(name, None) for name in SETTINGS]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    before = found(spark)
    yield spark
    put(spark, before)


@pytest.mark.parametrize("walked", [True, False])
@pytest.mark.parametrize("former", ["true", None])
def test_settings_are_those_of_before_again(session: SparkSession, former: str | None, *, walked: bool) -> None:
    put(session, [former, "CODEGEN_ONLY"])
    before = found(session)
    with suppress(ZeroDivisionError), set_meanwhile(session, WALKED_PLANS if walked else {}):
        within = found(session)
        assert sorted(row["next"] for row in session.sql("SELECT id + 1 AS next FROM range(3)").collect()) == [1, 2, 3]
        raise ZeroDivisionError
    assert within == (["false", "NO_CODEGEN"] if walked else before)
    assert found(session) == before
