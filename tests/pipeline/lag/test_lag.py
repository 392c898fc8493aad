"""Consume lag: every column of consume_lag against the stores' own files, and `pullsim lag` against consume_lag."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.embedded.database import EmbeddedLake
from pipeline.embedded.questions import ask
from pipeline.importing.import_store import import_store
from pipeline.lag.lag_sql import AskedLag, diff_total
from pipeline.lake.lake import Lake
from pipeline.settings.settings import BrokerSettings
from pipeline.sql.statements import VIEWS
from tests.makers.lakes import import_as
from tests.makers.plain_lakes import add_broker
from tests.models.store_lag import StoreLag, write_offsets
from tests.runs.in_session import Pullsim, pullsim_in, session_with_views
from tests.runs.replaying import demo_data, lake_of
from tests.runs.sampling import ALL, slow_proof
from tests.truth.golden import recovery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.schema.tables import Layout

Key = tuple[str, str, str, int]
Rows = dict[Key, dict[str, Any]]

KEY = ("brokerName", "consumerGroup", "topic", "queueId")
# `holes` has lost the first files of the log, and one of the log and one of a queue in between; queues of `preblank0` begin with pre-blanks
GOLDEN_STORES = ("holes", "preblank0")
# (group, topic, queueId) of the capture's topics -> the offset, from the queue's (minOffset, maxOffset), and the reason that it has
CASES: dict[tuple[str, str, int], tuple[Callable[[int, int], int], str | None]] = {
    ("keeps-up", "orders", 0): (lambda _, end: end, None),
    ("keeps-up", "orders", 1): (lambda _, end: end - 1, None),
    ("keeps-up", "metrics", 3): (lambda _, end: end, None),
    ("keeps-up", "%RETRY%g-main", 0): (lambda start, _: start + 10, None),
    ("slow", "orders", 2): (lambda start, _: start + 1, None),
    ("slow", "orders", 3): (lambda start, _: start, "LAST_CONSUMED_REMOVED"),
    ("slow", "promo", 0): (lambda _start, _end: 0, "NOTHING_CONSUMED"),
    ("too-slow", "orders", 4): (lambda start, _: start - 1, "OFFSET_BELOW_MIN"),
    ("too-slow", "orders", 5): (lambda _start, _end: 0, "OFFSET_BELOW_MIN"),
    ("too-slow", "ticks", 0): (lambda _start, _end: 999, "OFFSET_BELOW_MIN"),
    ("odd", "orders", 6): (lambda _start, _end: -5, "OFFSET_BELOW_MIN"),
    ("odd", "promo", 0): (lambda _start, _end: -1, "OFFSET_BELOW_MIN"),
    ("odd", "ledger", 0): (lambda _start, _end: -(2**63), "OFFSET_BELOW_MIN"),
    ("odd", "ledger", 1): (lambda _start, _end: 2**63 - 1, "OFFSET_BEYOND_BROKER_OFFSET"),
    ("ahead", "orders", 7): (lambda _, end: end + 1, "OFFSET_BEYOND_BROKER_OFFSET"),
    ("ahead", "metrics", 0): (lambda _start, _end: 1_000_000, "OFFSET_BEYOND_BROKER_OFFSET"),
    ("ahead", "orders", 99): (lambda _start, _end: 12, "NO_QUEUE"),
    ("ahead", "deleted", 3): (lambda _start, _end: 5, "NO_QUEUE"),
    ("idle", "%RETRY%idle", 0): (lambda _start, _end: 0, "NOTHING_CONSUMED"),
}


def imported(spark: SparkSession, lake: Path, store: Path, broker: str, layout: Layout | None = None) -> None:
    import_store(
        Lake(spark, str(lake)),
        str(store),
        broker=broker,
        layout=layout,
        settings=BrokerSettings.from_sources(),
        run_id=broker,
        now=lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        progress=lambda _step: None,
    )


def asked(lake: Path, query: str) -> list[dict[str, Any]]:
    """The rows that DuckDB gives; tests/pipeline/embedded compares them with those of Spark."""
    answer = ask(EmbeddedLake(str(lake)), query)
    return [dict(zip(answer.names, row, strict=True)) for row in answer.rows]


def by_key(rows: list[dict[str, Any]]) -> Rows:
    found = {tuple(row[name] for name in KEY): {name: value for name, value in row.items() if name not in KEY} for row in rows}
    assert len(found) == len(rows), "a queue has one row"
    return found


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a broker after a minute of real clients, with the offsets that they committed."""
    return demo_data(tmp_path_factory) / "broker-a"


@pytest.fixture(scope="module")
def edited(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same store with the offsets of CASES."""
    store = shutil.copytree(capture, tmp_path_factory.mktemp("edited") / "store")
    queues = StoreLag(store).queues
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for (group, topic, queue_id), (offset, _) in CASES.items():
        known = queues.get((topic, queue_id))
        bounds = (known.minimum, known.maximum) if known else (0, 0)
        offsets.setdefault((topic, group), {})[queue_id] = offset(*bounds)
    write_offsets(store, offsets)
    return store


@pytest.fixture(scope="module")
def lake(spark: SparkSession, capture: Path, edited: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two brokers with the same topics in one lake."""
    folder = Path(shutil.copytree(lake_of(spark, capture, tmp_path_factory).root, tmp_path_factory.mktemp("lag") / "lake"))
    if ALL:
        imported(spark, folder, edited, "broker-b")
    else:  # Spark alone imports into a lake of another broker
        other = tmp_path_factory.mktemp("edited-lake")
        import_as(spark, other, edited, "broker-b")
        add_broker(folder, "broker-b", other)
    return folder


@pytest.fixture(scope="module")
def wanted(capture: Path, edited: Path) -> Rows:
    return StoreLag(capture).rows("broker-a") | StoreLag(edited).rows("broker-b")


@pytest.fixture(scope="module")
def views(spark: SparkSession, lake: Path) -> SparkSession:
    return session_with_views(spark, lake)


@pytest.fixture(scope="module")
def found(lake: Path) -> Rows:
    return by_key(asked(lake, "SELECT * FROM consume_lag"))


def test_every_column_is_what_the_files_of_two_brokers_say(found: Rows, wanted: Rows) -> None:
    assert found == wanted
    assert len({group for _, group, _, _ in found}) > 20


def test_each_case_has_its_reason(found: Rows) -> None:
    reasons = {case: found["broker-b", *case]["reason"] for case in CASES}
    assert reasons == {case: reason for case, (_, reason) in CASES.items()}


def test_the_other_queues_of_a_topic_have_a_row_without_offset(found: Rows) -> None:
    ids = {queue_id for broker, group, topic, queue_id in found if (broker, group, topic) == ("broker-b", "ahead", "orders")}
    assert ids == {*range(8), 99}
    assert {found["broker-b", "ahead", "orders", number]["reason"] for number in range(7)} == {"NO_OFFSET"}


def test_nothing_is_null_without_a_reason(found: Rows) -> None:
    silent = {key: row for key, row in found.items() if row["reason"] is None and (None in {**row, "reason": 0}.values() or row["lag"] < 0)}
    assert silent == {}


def test_lag_by_group_sums_what_is_known_and_counts_what_is_not(lake: Path, wanted: Rows) -> None:
    sums = {tuple(row[name] for name in KEY[:3]): row for row in asked(lake, "SELECT * FROM consume_lag_by_group")}
    assert set(sums) == {key[:3] for key in wanted}
    for of_topic, row in sums.items():
        queues = [queue for key, queue in wanted.items() if key[:3] == of_topic]

        def known(name: str, of: list[dict[str, Any]] = queues) -> list[int]:
            return [queue[name] for queue in of if queue[name] is not None]

        assert (row["queues"], row["queuesUnknown"]) == (len(queues), len(queues) - len(known("lag")))
        assert row["queuesNegative"] == sum(lag < 0 for lag in known("lag"))
        assert (row["lag"], row["lagBytes"]) == (sum(known("lag")) if known("lag") else None, sum(known("lagBytes")))
        assert (row["lagMillisMax"], row["lagMillisUnknown"]) == (
            max(known("lagMillis"), default=None),
            len(queues) - len(known("lagMillis")),
        )
        assert row["lastConsumedTimestamp"] == max(known("lastConsumedTimestamp"), default=None)
        assert row["asOf"] == queues[0]["asOf"]


def swept(stores: Path, name: str, folder: Path) -> tuple[Path, StoreLag]:
    """A copy of a golden store with groups at every special offset of every queue; and the lag by its files."""
    store = shutil.copytree(stores / name, folder / name)
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for (topic, queue_id), queue in StoreLag(store).queues.items():
        middle = (queue.minimum + queue.maximum) // 2
        gaps = [number for number in range(min(queue.entries), queue.maximum) if number not in queue.entries]
        places = [0, queue.minimum - 1, queue.minimum, queue.minimum + 1, middle, queue.maximum - 1, queue.maximum, queue.maximum + 3]
        places += [gaps[0] - 1, gaps[0], gaps[-1], gaps[-1] + 1] if gaps else []
        places += [number for number, entry in queue.entries.items() if entry[1] == 2147483647][-1:]
        for number, offset in enumerate(places):
            offsets.setdefault((topic, f"place-{number}"), {})[queue_id] = offset
    write_offsets(store, offsets)
    return store, StoreLag(store)


@slow_proof
def test_stores_with_missing_files_and_with_pre_blanks_agree_at_every_place(spark: SparkSession, stores: Path, tmp_path: Path) -> None:
    wanted: Rows = {}
    for name in GOLDEN_STORES:
        store, files = swept(stores, name, tmp_path)
        recorded = {(queue["topic"], queue["queueId"]): queue for queue in recovery(name)["afterLoad"]["queues"]}
        bounds = {key: (queue["minOffsetInQueue"], queue["maxOffsetInQueue"]) for key, queue in recorded.items()}
        assert {key: (queue.minimum, queue.maximum) for key, queue in files.queues.items()} == bounds
        imported(spark, tmp_path / "lake", store, name, "clustered")
        wanted |= files.rows(name)
    found = by_key(asked(tmp_path / "lake", "SELECT * FROM consume_lag"))
    assert found == wanted
    reasons = {row["reason"] for row in found.values()}
    assert reasons >= {"PRE_BLANK", "NO_QUEUE_FILE", "MESSAGE_REMOVED", "OFFSET_BELOW_MIN", "LAST_CONSUMED_REMOVED"}


def plan(spark: SparkSession, query: str) -> str:
    return str(spark.sql(f"EXPLAIN FORMATTED {query}").collect()[0][0])


def scans(plan_text: str, table: str) -> list[str]:
    """The sections of a plan that describe the scans of a table."""
    return re.findall(rf"Location: \S+ \[\S+/{table}\].*?\n\n", plan_text, re.DOTALL)


@slow_proof
def test_the_entries_are_read_once_however_many_groups_there_are(views: SparkSession) -> None:
    text = plan(views, "SELECT * FROM consume_lag")
    assert [len(scans(text, table)) for table in ("consume_queue", "consume_queue_segment", "commit_log")] == [1, 1, 0]
    assert "binary" not in scans(text, "consume_queue_segment")[0]


@slow_proof
def test_one_group_reads_the_partitions_of_its_queues_only(views: SparkSession) -> None:
    text = plan(views, "SELECT * FROM consume_lag WHERE consumerGroup = 'g-main'")
    assert "dynamicpruning" in scans(text, "consume_queue")[0]


def test_every_column_of_a_view_says_what_it_means(lake: Path) -> None:
    described = [(view, row["col_name"], row["comment"]) for view in VIEWS for row in asked(lake, f"DESCRIBE {view}")]
    assert [(view, column) for view, column, comment in described if not comment] == []
    assert {view for view, _, _ in described} == set(VIEWS)


def test_the_column_reason_explains_each_reason(lake: Path, found: Rows) -> None:
    (comment,) = [row["comment"] for row in asked(lake, "DESCRIBE consume_lag") if row["col_name"] == "reason"]
    explained = set(re.findall(r"^([A-Z_]+): ", comment, re.MULTILINE))
    assert explained >= {row["reason"] for row in found.values()} - {None}
    assert explained >= {"PRE_BLANK", "NO_QUEUE_FILE", "MESSAGE_REMOVED"}


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def test_the_table_has_the_columns_and_the_total_of_consumer_progress(pullsim: Pullsim, lake: Path, found: Rows) -> None:
    code, out, _ = pullsim("lag", "--lake", lake, "--group", "ahead")
    header, *lines, blank, total = out.splitlines()
    assert code == 0
    assert re.split(r"  +", header.strip()) == [
        *("#Group", "#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime"),
        *("#Lag Seconds", "#Lag Bytes", "#Reason"),
    ]
    rows = {key: row for key, row in found.items() if key[1] == "ahead"}
    assert (len(lines), blank) == (len(rows), "")
    known = [row["lag"] for row in rows.values() if row["lag"] is not None]
    below = [lag for lag in known if lag < 0]
    assert len(known) < len(rows)
    assert total == (
        f"Diff Total: {sum(known)} ({len(rows) - len(known)} of {len(rows)} queues left out: their lag is not known; "
        f"{len(below)} of {len(rows)} queues below zero take {-sum(below)} off)"
    )


def test_a_line_of_the_table_shows_times_as_people_read_them(pullsim: Pullsim, lake: Path, found: Rows) -> None:
    row = found["broker-b", "slow", "orders", 2]
    _, out, _ = pullsim("lag", "--lake", lake, "--group", "slow", "--topic", "orders")
    (line,) = [line for line in out.splitlines() if line.startswith("slow") and re.search(r"broker-b +2 ", line)]
    last = dt.datetime.fromtimestamp(row["lastConsumedTimestamp"] / 1000, dt.UTC)
    shown = ["slow", "orders", "broker-b", "2", *(str(row[name]) for name in ("brokerOffset", "consumerOffset", "lag"))]
    shown += [f"{last:%Y-%m-%d %H:%M:%S}", f"{row['lagMillis'] / 1000:.3f}", str(row["lagBytes"])]
    assert re.split(r"  +", line.strip()) == shown
    assert any(line.split()[-1] == "NO_OFFSET" and " N/A " in line for line in out.splitlines())


@pytest.mark.parametrize("form", ["json", "csv"])
def test_json_and_csv_give_the_rows_of_consume_lag_and_no_total(pullsim: Pullsim, lake: Path, found: Rows, form: str) -> None:
    code, out, _ = pullsim("lag", "--lake", lake, "--topic", "orders", "--format", form)
    read = [json.loads(line) for line in out.splitlines()] if form == "json" else list(csv.DictReader(io.StringIO(out)))
    wanted = [dict(zip(KEY, key, strict=True)) | row for key, row in sorted(found.items()) if key[2] == "orders"]
    if form == "csv":
        wanted = [{name: "" if value is None else str(value) for name, value in row.items()} for row in wanted]
    assert (code, read) == (0, wanted)


def test_a_queue_of_a_topic_is_shown_alone(pullsim: Pullsim, lake: Path, found: Rows) -> None:
    code, out, _ = pullsim("lag", "--lake", lake, "--topic", "orders", "--queue", "2", "--format", "json")
    wanted = [key for key in sorted(found) if key[2:] == ("orders", 2)]
    assert (code, [tuple(json.loads(line)[name] for name in KEY) for line in out.splitlines()]) == (0, wanted)
    for words, told in ((("--queue", "2"), "give --topic too"), (("--topic", "orders", "--queue", "2", "--by", "topic"), "sums cover all")):
        code, _, err = pullsim("lag", "--lake", lake, *words)
        assert (code, told in err) == (2, True)


@pytest.mark.parametrize(
    ("option", "name", "nearest"),
    [
        ("--group", "g-mian", "consumer group 'g-mian'; the nearest known: 'g-main'"),
        ("--topic", "order", "topic 'order'; the nearest known: 'orders'"),
        # captured pulls name topics that begin so, but no such topic exists
        ("--topic", "no-such", "topic 'no-such'; the nearest known: 'orders'"),
    ],
)
def test_an_unknown_name_ends_with_2_and_the_nearest_known_ones(pullsim: Pullsim, lake: Path, option: str, name: str, nearest: str) -> None:
    code, out, err = pullsim("lag", "--lake", lake, option, name)
    assert (code, out) == (2, "")
    assert nearest in err


def test_a_topic_on_which_no_group_has_an_offset_is_known_and_says_so(pullsim: Pullsim, lake: Path) -> None:
    code, out, _ = pullsim("lag", "--lake", lake, "--topic", "OFFSET_MOVED_EVENT")
    assert (code, out.splitlines()[-1]) == (0, "Diff Total: 0 (no stored offset matches)")


@slow_proof
def test_watched_lag_is_shown_again_when_the_lake_has_changed_and_not_before(
    pullsim: Pullsim, spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    def nothing() -> bool:
        return False

    def recorded() -> bool:
        shown.append(capsys.readouterr().out)
        pullsim("lag", "--lake", lake, "--broker", "broker-a", "--record")
        return False

    def asked_to_end() -> bool:
        return True

    looks = iter((nothing, nothing, recorded, nothing, asked_to_end))
    stop = SimpleNamespace(wait=lambda _seconds: next(looks)())
    monkeypatch.setattr("pipeline.files.stopping.told_to_stop", lambda: nullcontext(stop))
    code, out, _ = pullsim("lag", "--lake", lake, "--broker", "broker-a", "--topic", "orders", "--watch")
    version = Lake(spark, str(lake)).at.version
    heading, again = out.strip().split("\n", 1)
    assert (code, again.strip()) == (0, shown[0].strip())
    assert re.fullmatch(rf"lake version {version}, [-0-9]+ [:0-9]+ UTC", heading)


def test_waiting_time_until_now_is_counted_for_what_waits_only(lake: Path, found: Rows) -> None:
    as_of = found["broker-b", "slow", "orders", 2]["asOf"]
    until = dt.datetime.fromtimestamp(as_of / 1000 + 60, dt.UTC)
    [asked_until] = EmbeddedLake(str(lake)).asked([AskedLag(until=until).consumer_progress])
    rows = [row for row in asked_until if row["Broker Name"] == "broker-b"]
    assert rows
    for row in rows:
        before = found["broker-b", row["Group"], row["Topic"], row["QID"]]
        waited = before["lagMillis"] if before["lagMillis"] is None or before["lag"] == 0 else before["lagMillis"] + 60_000
        assert (None if row["Lag Seconds"] is None else int(row["Lag Seconds"] * 1000)) == waited


@pytest.mark.parametrize(
    ("diffs", "line"),
    [
        ([3, 4], "Diff Total: 7"),
        ([], "Diff Total: 0 (no stored offset matches)"),
        ([3, None, None], "Diff Total: 3 (2 of 3 queues left out: their lag is not known)"),
        ([3, -5], "Diff Total: -2 (1 of 2 queues below zero take 5 off)"),
        ([2**63 - 1, 2**63 - 1], f"Diff Total: {2**64 - 2}"),
    ],
)
def test_the_total_says_what_it_leaves_out(diffs: list[int | None], line: str) -> None:
    assert diff_total(diffs) == line
