"""The SQL functions that are written in Python, on plain values. Spark and the embedded engine call the same ones.

`sql_functions` makes pandas UDFs of them. This module needs no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from store_format.layout import COMPRESSED_FLAG
from udfs.consumer.message_body import uncompress
from udfs.filters.sql92 import Compiled, compile_expression
from udfs.filters.sql92_columns import Texts
from udfs.filters.sql92_values import NULL
from udfs.pull import batch_caps


def batch_cut(sizes: NDArray[Any] | None, in_disk: NDArray[np.bool_] | None, numbers: Sequence[int | None]) -> int | None:
    """Return how many messages one pull takes (`batch_caps.batch_cut`).

    Args:
        sizes: sizes of the messages in bytes; None if the array is NULL or has a NULL element.
        in_disk: whether each message counts as on disk; None likewise.
        numbers: maxMsgNums, then the caps in the order of `batch_caps.batch_cut`.

    Returns:
        The number of messages; None if an argument is None, or maxMsgNums is negative.
    """
    known = [int(number) for number in numbers if number is not None]
    if sizes is None or in_disk is None or len(known) < len(numbers) or known[0] < 0:
        return None
    return int(batch_caps.batch_cut(sizes, in_disk, *known))


def sql92_codes(expression: str, maps: Sequence[Mapping[str, str] | None]) -> NDArray[np.int8]:
    """Return the value of an SQL92 expression for each message: TRUE, FALSE, NULL or ERROR of `sql92_values`.

    Every value is NULL if the expression does not compile.

    Args:
        expression: text of the filter.
        maps: properties of each message; None is a message without properties.
    """
    compiled = compile_expression(expression)
    if not isinstance(compiled, Compiled):
        return np.full(len(maps), NULL, np.int8)
    columns = {name: Texts.of(one.get(name) if one else None for one in maps) for name in compiled.properties}
    return compiled.matches_many(columns, len(maps))


def uncompressed(body: bytes, sys_flag: Any) -> bytes | None:
    """Return a body as consumers get it, uncompressed (`message_body.uncompress`) if `sys_flag` marks it compressed."""
    return uncompress(body, sys_flag=int(sys_flag)) if int(sys_flag) & COMPRESSED_FLAG else body
