"""group_status: Burrow's rules over observations, against a model of Burrow, which is compared with Burrow's own cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pipeline.schema import tables as t
from pipeline.schema.capture_tables import OFFSET_HISTORY, PULL_REQUEST
from pipeline.schema.lag_tables import LAG_HISTORY
from tests.models.burrow import Commit, Seen, status_of, statuses
from tests.runs.sampling import ALL, slow_proof
from tests.runs.views_by_hand import ENGINES, Tables, in_spark, on_duckdb, shown_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANK = ["OK", "UNKNOWN", "WARN", "STOP", "STALL", "REWIND"]


def commits(*numbers: tuple[int, int, int | None]) -> list[Commit]:
    """Commits by offset, time in s, and lag."""
    return [Commit(offset, at * 1000, lag) for offset, at, lag in numbers]


def even(offsets: Sequence[int], lags: Sequence[int]) -> list[Commit]:
    return commits(*((offset, 100 * number, lag) for number, (offset, lag) in enumerate(zip(offsets, lags, strict=True), 1)))


RISING, STANDING, REWOUND = [1000, 2000, 3000, 4000, 5000], [1000] * 5, [1000, 2000, 3000, 2000]
REWOUND_LAGS = [100, 150, 200, 1250, 300]
LATE = 1_512_224_650
LONG_AGO = [Commit(792748079 + number, (LATE - 32 + number) * 1000, 0) for number in range(15)]
# the cases of Burrow's own caching_test.go: commits, broker offsets, current lag, now in s, allowed lag, status
BURROW = [
    (even(RISING, [0, 50, 100, 150, 200]), [5200], 200, 600, 0, "OK"),
    (even(RISING, [0, 50, 100, 150, 200]), [5200], 200, 900, 0, "OK"),
    (even(RISING, [0, 50, 100, 150, 200]), [5200], 200, 1000, 0, "STOP"),
    (even(RISING, [50, 100, 150, 200, 250]), [5250], 250, 1000, 0, "STOP"),
    (even(STANDING, [0, 50, 100, 150, 200]), [1200], 200, 600, 0, "OK"),
    (even(STANDING, [100, 150, 200, 250, 300]), [1300], 300, 600, 0, "STALL"),
    (even(STANDING, [100] * 5), [1100], 100, 600, 0, "STALL"),
    (even([*REWOUND, 4000], REWOUND_LAGS), [4300], 300, 600, 0, "OK"),
    (even(RISING, [50, 100, 150, 200, 250]), [5250], 0, 1000, 0, "OK"),
    (LONG_AGO, [792749024, 792749000, 792748800, 792748600, 792748500], 931, LATE, 0, "STOP"),
    (LONG_AGO, [792748094, 792748093, 792748093, 792748093], 1, LATE, 0, "OK"),
    (commits(*((500 * n, 50 * n, None if n % 2 else 25 * (n - 2)) for n in range(2, 12))), [5700], 200, 600, 0, "OK"),
    (commits((1000, 100, 2), (2000, 200, 1), (2000, 300, 1)), [2001], 1, 550, 1, "OK"),
    (even(STANDING, [100, 150, 200, 250, 300]), [1300], 300, 600, 99, "STALL"),
    (even([*REWOUND, 4000], REWOUND_LAGS), [4300], 300, 600, 99, "OK"),
    (even([*REWOUND, 2500], REWOUND_LAGS), [4300], 300, 600, 0, "REWIND"),
]


@pytest.mark.parametrize(("window", "ends", "lag", "now", "allowed", "status"), BURROW)
def test_the_model_agrees_with_burrow_on_its_own_cases(
    window: list[Commit], ends: list[int], lag: int, now: int, allowed: int, status: str
) -> None:
    assert status_of(window, ends, lag, now * 1000, allowed) == status


def stored(rows: Sequence[Seen], *, has_commits: bool = False) -> dict[t.Table, list[dict[str, object]]]:
    """Tables with the lag history of one broker, a captured pull, and with `has_commits` a captured commit."""
    queue: dict[str, object] = {"brokerName": "b", "topic": "t", "queueId": 0}
    captured = queue | {"arrivalMicros": 10**15, "held": False, "requestId": "r", "sequence": 0}
    place = {"source": "s", "sourceDigest": "d", "connection": "c", "client": "c"}
    told = {"consumerGroup": "captured", "micros": 10**15, "consumerOffset": 7, "code": 0, "origin": "UPDATE_CONSUMER_OFFSET"}
    history = [
        {"brokerName": "b", "consumerGroup": row.group, "topic": row.topic, "queueId": row.queue_id, "observedAt": row.at}
        | {"consumerOffset": row.offset, "brokerOffset": row.end, "minOffset": row.begin, "lag": _lag(row), "lakeVersion": 1}
        for row in rows
    ]
    return {
        LAG_HISTORY: history,
        # a broker with enough observations is judged by them, whatever was captured; captured pulls alone give no status
        PULL_REQUEST: [captured | place],
        OFFSET_HISTORY: [captured | place | told] if has_commits else [],
        t.CONSUME_QUEUE: [],
        t.CONSUMER_OFFSET: [
            queue | {"consumerGroup": "forgotten", "consumerOffset": 5},
            queue | {"consumerGroup": "forgotten-at-0", "consumerOffset": 0},
            queue | {"consumerGroup": "forgotten-and-empty", "consumerOffset": 0, "topic": "%RETRY%g"},
            queue | {"consumerGroup": "forgotten-without-files", "consumerOffset": 0, "topic": "%RETRY%h"},
        ],
        t.QUEUE: [
            queue | {"minOffset": 0, "maxOffset": 9},
            queue | {"topic": "%RETRY%g", "minOffset": 0, "maxOffset": 0},
        ],
    }


def values(tables: dict[t.Table, list[dict[str, object]]]) -> Tables:
    return {table: [tuple(row.get(name) for name in table.names) for row in rows] for table, rows in tables.items()}


def _lag(row: Seen) -> int | None:
    lag = None if row.offset is None else row.end - row.offset
    return lag if lag is not None and lag < 2**63 else None


def history(
    group: str,
    offsets: Sequence[int | None],
    ends: Sequence[int],
    *,
    topic: str = "t",
    queue_id: int = 0,
    begins: Sequence[int] = (0,) * 10,
) -> list[Seen]:
    """Observations of a queue, one a minute, the last ones of eleven."""
    first = 11 - len(offsets)
    return [
        Seen(group, topic, queue_id, 60_000 * (first + number), offset, end, begins[number])
        for number, (offset, end) in enumerate(zip(offsets, ends, strict=True))
    ]


GROWING = [100 + 10 * n for n in range(10)]
AHEAD = [1000 + 10 * n for n in range(10)]
# group -> the observations of its queue 0 of topic t, the status, and the rule
CASES: dict[str, tuple[list[Seen], str, str]] = {
    "no-offset": (history("no-offset", [None] * 10, AHEAD), "UNKNOWN", "NO_OFFSET"),
    "no-messages": (history("no-messages", [None] * 10, [0] * 10), "OK", "NO_OFFSET"),
    "no-offset-any-more": (history("no-offset-any-more", [*range(9), None], AHEAD), "UNKNOWN", "NO_OFFSET"),
    # all that was seen of a retry queue without a message, say
    "young-and-empty": (history("young-and-empty", [0] * 2, [0] * 2), "OK", "NO_LAG"),
    "young": (history("young", [5] * 9, AHEAD[1:]), "UNKNOWN", "INCOMPLETE_WINDOW"),
    "first-offset-came-late": (history("first-offset-came-late", [None, *[5] * 9], AHEAD), "UNKNOWN", "INCOMPLETE_WINDOW"),
    "keeps-up": (history("keeps-up", AHEAD, AHEAD), "OK", "NO_LAG"),
    "past-the-end": (history("past-the-end", [5000] * 10, AHEAD), "OK", "NO_LAG"),
    "dead": (history("dead", [50] * 10, AHEAD), "STOP", "NO_COMMITS"),
    "far-below": (history("far-below", [-(2**63)] * 10, AHEAD), "STOP", "NO_COMMITS"),
    # moved at the second to fifth observation: 5 minutes of silence are more than 4 of commits
    "died": (history("died", [0, 1, 2, 3, *[4] * 6], AHEAD), "STOP", "NO_COMMITS"),
    # to the sixth: 4 are not more than 5
    "may-live": (history("may-live", [0, 1, 2, 3, 4, *[5] * 5], AHEAD), "WARN", "LAG_NOT_DECREASING"),
    "was-there-lately": (history("was-there-lately", [100] * 10, [100, *GROWING[1:]]), "OK", "HAD_NO_LAG"),
    "went-back": (history("went-back", [500, 510, 400, 410, 420, 430, 440, 450, 460, 509], AHEAD), "REWIND", "OFFSET_WENT_BACK"),
    "came-back": (history("came-back", [500, 510, 400, 410, 420, 430, 440, 450, 460, 510], AHEAD), "OK", "LAG_DECREASED"),
    "stuck": (
        history("stuck", [50] * 10, AHEAD) + history("stuck", [5 * n for n in range(10)], AHEAD, queue_id=1),
        "STALL",
        "OFFSET_STANDS",
    ),
    # a group that moves on another topic may still be dead on this one
    "half-dead": (
        history("half-dead", [50] * 10, AHEAD) + history("half-dead", [5 * n for n in range(10)], AHEAD, topic="u"),
        "STOP",
        "NO_COMMITS",
    ),
    "too-slow": (history("too-slow", [5 * n for n in range(10)], AHEAD), "WARN", "LAG_NOT_DECREASING"),
    # 7 messages consumed at each look; before the sixth, 500 more were deleted; the queue grows by 10
    "jumped": (
        history("jumped", [7 * n + (500 if n > 5 else 0) for n in range(10)], AHEAD, begins=[0] * 6 + [542] * 4),
        "WARN",
        "MESSAGES_DELETED",
    ),
    "jumped-and-consumes": (
        history("jumped-and-consumes", [7 * n + (500 if n > 5 else 0) for n in range(10)], AHEAD, begins=[0] * 6 + [500] * 4),
        "OK",
        "LAG_DECREASED",
    ),
    "catches-up": (history("catches-up", [20 * n for n in range(10)], AHEAD), "OK", "LAG_DECREASED"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_each_rule_speaks_where_it_should_and_the_worst_status_is_the_groups(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    gone = [Seen("gone", "t", 0, 60_000 * number, 1, 1000) for number in range(10)]
    older = [Seen("keeps-up", "t", 0, 0, 10**6, 5)]  # out of the window
    seen = [*gone, *older, *(row for rows, _, _ in CASES.values() for row in rows)]
    show = shown_by(request, tmp_path, engine)
    found = show(values(stored(seen, has_commits=True)), "queue_status", "group_status")
    assert {row["consumerGroup"]: (row["status"], row["why"]) for row in found if (row["topic"], row["queueId"]) == ("t", 0)} == {
        group: (status, why) for group, (_, status, why) in CASES.items()
    } | {"forgotten": ("UNKNOWN", "NOT_OBSERVED"), "forgotten-at-0": ("UNKNOWN", "NOT_OBSERVED")}
    empty = {row["topic"]: (row["status"], row["why"]) for row in found if row["topic"].startswith("%RETRY%")}
    assert empty == {"%RETRY%g": ("OK", "NOT_OBSERVED"), "%RETRY%h": ("OK", "NOT_OBSERVED")}
    for row in found:
        of_group = [other["status"] for other in found if other["consumerGroup"] == row["consumerGroup"]]
        assert row["groupStatus"] == max(of_group, key=RANK.index)
    by_group = {row["consumerGroup"]: row for row in found if (row["topic"], row["queueId"]) == ("t", 0)}
    assert {row["groupStatus"] for row in found if row["consumerGroup"] == "stuck"} == {"STALL"}
    assert [by_group["died"][name] for name in ("lag", "complete", "committedAt", "observedFrom", "observedAt")] == [
        *(1086, 1.0, 5 * 60_000, 60_000, 10 * 60_000)
    ]
    assert (by_group["far-below"]["lag"], by_group["past-the-end"]["lag"], by_group["young"]["complete"]) == (2**63 - 1, 0, 0.9)


OFFSET = st.one_of(st.none(), st.integers(0, 6), st.integers(0, 6), st.sampled_from([-(2**63), -1, 2**63 - 1]))


@st.composite
def brokers(draw: st.DrawFn) -> list[Seen]:
    """A broker's history: many small queues, some of which begin late, have holes, or are gone in the end."""
    times = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=8)))
    rows = []
    for group in range(draw(st.integers(1, 12))):
        for queue_id in range(draw(st.integers(1, 3))):
            seen = draw(st.one_of(st.just(times), st.lists(st.sampled_from(times), unique=True)))
            offset = draw(OFFSET)
            end = draw(st.integers(0, 6))
            for at in sorted(seen):
                offset = draw(st.one_of(st.just(offset), OFFSET))
                end += draw(st.integers(0, 2))
                rows.append(Seen(f"g{group}", "t", queue_id, at, offset, end))
    return rows


CALLS = st.tuples(st.integers(1, 6), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 3))


def check_as_burrow(found: Sequence[Mapping[str, Any]], rows: list[Seen], call: tuple[int, float, int]) -> None:
    """Check that each queue has the status that the model of Burrow gives it."""
    intervals, minimum_complete, allowed_lag = call
    assert {(row["consumerGroup"], row["topic"], row["queueId"]): row["status"] for row in found} == statuses(
        rows, intervals=intervals, minimum_complete=minimum_complete, allowed_lag=allowed_lag
    )


# an example takes Spark 3 s of processor time, and DuckDB a quarter of one; shrinking asks Spark hundreds of times
@slow_proof
@settings(
    max_examples=10 if ALL else 2,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(brokers(), CALLS)
def test_any_history_is_judged_as_burrow_would(spark: SparkSession, rows: list[Seen], call: tuple[int, float, int]) -> None:
    check_as_burrow(in_spark(spark, values(stored(rows)), "queue_status", f"queue_status{call}"), rows, call)


@settings(max_examples=40 if ALL else 10, suppress_health_check=[HealthCheck.too_slow])
@given(brokers(), CALLS)
def test_any_history_is_judged_without_spark_as_burrow_would(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Seen], call: tuple[int, float, int]
) -> None:
    check_as_burrow(on_duckdb(tmp_path_factory.mktemp("history") / "lake", values(stored(rows)), f"queue_status{call}"), rows, call)
