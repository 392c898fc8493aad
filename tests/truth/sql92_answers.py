"""Compares our SQL92 filters with recorded answers of the real broker, in the form of the recording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from udfs.filters import message_filter, sql92
from udfs.filters.bloom_filter import BloomFilter
from udfs.filters.consumer_filter_manager import build
from udfs.filters.sql92_columns import Texts

Answer = bool | str | None
ERROR = "error"
CODES: Mapping[Answer, int] = {True: 1, False: 0, None: -1, ERROR: -2}


def compiled(text: str, *, text_operators: bool = False) -> sql92.Compiled:
    found = sql92.compile_expression(text, text_operators=text_operators)
    assert isinstance(found, sql92.Compiled), found
    return found


def compiles(text: str, *, text_operators: bool = False) -> bool:
    return isinstance(sql92.compile_expression(text, text_operators=text_operators), sql92.Compiled)


def answer(expression: sql92.Compiled, properties: Mapping[str, str | None] | None) -> Answer:
    try:
        return expression.evaluate(properties)
    except sql92.EvaluationError:
        return ERROR


def together(expression: sql92.Compiled, messages: list[dict[str, str]]) -> list[int]:
    columns = {name: Texts.of(message.get(name) for message in messages) for name in expression.properties}
    codes: list[int] = expression.matches_many(columns, len(messages)).tolist()
    return codes


def differences(rows: Iterable[dict[str, Any]], *, text_operators: bool = False) -> list[tuple[Any, ...]]:
    """The cases in which our answer differs from the broker's: the case with the recorded answer, and ours."""
    found: list[tuple[Any, ...]] = []
    for row in rows:
        text, evals = row["expr"], row["evals"]
        if compiles(text, text_operators=text_operators) != row["compile"]["ok"]:
            found.append((text, not row["compile"]["ok"]))
        elif row["compile"]["ok"]:
            expression = compiled(text, text_operators=text_operators)
            ours = [answer(expression, one["props"]) for one in evals]
            theirs = [ERROR if isinstance(one["result"], dict) else one["result"] for one in evals]
            if ours != theirs:
                found.append((text, ours, theirs, [one["props"] for one in evals]))
            if together(expression, [one["props"] for one in evals]) != [CODES[one] for one in theirs]:
                found.append((text, "together", theirs))
        if text:
            given = [matched_by_commit_log(text, one["props"], text_operators=text_operators) for one in evals]
            found += [(text, "broker", one) for one, matched in zip(evals, given, strict=True) if matched != one["matchedByCommitLog"]]
        if (build("T", "G", text, "SQL92", 1, now=5, text_operators=text_operators) is not None) != row["filterDataBuilt"]:
            found.append((text, "filterDataBuilt"))
    return found


def matched_by_commit_log(text: str, properties: Mapping[str, str], *, text_operators: bool = False) -> bool:
    """Whether the broker delivers a message with these properties. The expression may be one that does not compile."""
    subscription = message_filter.TopicSubscription.build("T", text, "SQL92")
    data = build("T", "G", text, "SQL92", 1, now=5, text_operators=text_operators)
    wanted = message_filter.ExpressionMessageFilter(subscription, data, BloomFilter(3, 112), text_operators=text_operators)
    return wanted.is_matched_by_commit_log(properties)
