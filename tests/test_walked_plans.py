"""Plans that are walked: queries have their rows, and the settings are those of before again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pipeline.session import walked_plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")


@pytest.mark.parametrize("few_rows", [True, False])
@pytest.mark.parametrize("former", ["true", None])
def test_settings_are_those_of_before_again(spark: SparkSession, former: str | None, *, few_rows: bool) -> None:
    session = spark.newSession()
    for name, value in zip(SETTINGS, (former, "CODEGEN_ONLY"), strict=True):
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)
    before = [session.conf.get(name, None) for name in SETTINGS]
    with suppress(ZeroDivisionError), walked_plans(session, few_rows=few_rows):
        within = [session.conf.get(name, None) for name in SETTINGS]
        assert sorted(row["next"] for row in session.sql("SELECT id + 1 AS next FROM range(3)").collect()) == [1, 2, 3]
        raise ZeroDivisionError
    assert within == (["false", "NO_CODEGEN"] if few_rows else before)
    assert [session.conf.get(name, None) for name in SETTINGS] == before
