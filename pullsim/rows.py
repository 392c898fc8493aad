"""Rows of an answer: as Arrow, pandas, Polars or Spark, and as a table in a notebook."""

from __future__ import annotations

from functools import cached_property
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

_SHOWN: Final = 20
_STYLE: Final = "font-variant-numeric: tabular-nums; white-space: pre-wrap"


class Rows:
    """The rows of an answer; a notebook shows the first 20 of them.

    >>> query = "SELECT consumerGroup, sum(lag) AS lag FROM consume_lag GROUP BY consumerGroup ORDER BY lag DESC LIMIT 3"
    >>> rows = pullsim.open("lake").sql(query)
    >>> rows
    consumerGroup   lag
    g-probe        4814
    g-slow          576
    g-first          18
    (3 rows)
    >>> rows.columns, len(rows)
    (['consumerGroup', 'lag'], 3)
    """

    def __init__(self, table: pa.Table | None = None, *, frame: DataFrame | None = None, note: str = "") -> None:
        """Take the rows of an Arrow table, or of a DataFrame of Spark, which runs when its rows are needed; `note` is shown below."""
        self._given, self._frame, self._note = table, frame, note

    @cached_property
    def _table(self) -> pa.Table:
        if self._given is not None:
            return self._given
        assert self._frame is not None
        return self._frame.toArrow()

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        if self._frame is not None:
            return self._frame.columns
        return list(self._table.column_names)

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table; times are in microseconds and UTC.

        >>> pullsim.open("lake").lag().arrow().schema.field("lag").type
        DataType(int64)
        """
        return self._table

    def pandas(self) -> pd.DataFrame:
        """The rows as a DataFrame of pandas; integers are of the types Int32 and Int64, which hold NULL without rounding.

        Raises:
            ImportError: pandas is not installed.

        >>> pullsim.open("lake").lag(group="g-slow").pandas()["lag"].sum()
        np.int64(576)
        """
        import pyarrow as pa

        pandas = _require("pandas")
        kinds = {pa.int32(): pandas.Int32Dtype(), pa.int64(): pandas.Int64Dtype()}
        found: pd.DataFrame = self._table.to_pandas(types_mapper=kinds.get)
        return found

    def polars(self) -> pl.DataFrame:
        """The rows as a DataFrame of Polars.

        Raises:
            ImportError: polars is not installed.

        >>> pullsim.open("lake").lag(group="g-slow").polars()["lag"].sum()
        576
        """
        found: pl.DataFrame = _require("polars").from_arrow(self._table)
        return found

    def spark(self) -> DataFrame:
        """The rows as a DataFrame of Spark.

        Raises:
            TypeError: DuckDB answered.
        """
        if self._frame is None:
            raise TypeError('DuckDB gave these rows, so that they are no DataFrame of Spark; pullsim.open(path, engine="spark") gives one')
        return self._frame

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def _first(self) -> tuple[list[list[Any]], str]:
        """Return the first rows, and a line with the number of all rows."""
        shown = self._table.slice(0, _SHOWN)
        rows = [list(row) for row in zip(*(column.to_pylist() for column in shown.columns), strict=True)]
        total = f"{len(self):,} row{'' if len(self) == 1 else 's'}"
        count = total if len(self) <= _SHOWN else f"the first {_SHOWN} of {total}"
        return rows, f"{count}; {self._note}" if self._note else count

    def __repr__(self) -> str:
        from pipeline.terminal import table_text

        rows, below = self._first()
        lines = [line.rstrip() for line in table_text(self.columns, rows).splitlines()]
        return "\n".join([*lines, f"({below})"])

    def _repr_html_(self) -> str:
        rows, below = self._first()
        numeric = [bool(rows) and all(isinstance(row[at], int | float | None) for row in rows) for at in range(len(self.columns))]
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(f"<tr>{''.join(map(_cell, row, numeric))}</tr>" for row in rows)
        return f'<table style="{_STYLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{escape(below)}</p>'


def _cell(value: Any, is_number: bool) -> str:
    from pipeline.terminal import value_text

    return f'<td style="text-align: {"right" if is_number else "left"}">{escape(value_text(value))}</td>'


def _require(package: str) -> Any:
    """Return the module of an optional package.

    Raises:
        ImportError: the package is not installed.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise ImportError(f"{package} is not installed: install it with `pip install {package}`, or take arrow()") from error
