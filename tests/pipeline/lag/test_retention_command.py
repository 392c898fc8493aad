"""`pullsim retention`: rows worked out by hand on a broker whose log has three files, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.main import run
from pipeline.schema import tables as t
from pipeline.schema.lag_tables import LAG_HISTORY
from tests.makers.plain_lakes import plain_lake
from tests.makers.report_lakes import write_rows
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.sampling import slow_proof
from tests.runs.verdicts import on_one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3_600_000
MIDNIGHT = int(dt.datetime(2024, 5, 1, tzinfo=dt.UTC).timestamp() * 1000)
BROKER = "b'1"
# (consumerOffset, offsets consumed in the last ten hours) on queue 0, which has ten messages of 100 bytes in each file
GROUPS = {"slow": (5, 5), "stopped": (12, 0), "new": (5, None), "last": (25, 1), "done": (30, 5), "late": (-2, None)}


def rows_of_broker() -> dict[t.Table, list[dict[str, Any]]]:
    """Three files, last written 71, 50 and 0 hours before midnight; the last one is half full. There is a message every 100 bytes."""
    ages = (71, 50, 0)
    return {
        t.BROKER: [
            {
                "maxStoreTimestamp": MIDNIGHT,
                "minPhyOffset": 0,
                "maxPhyOffset": 2500,
                "mappedFileSizeCommitLog": 1000,
                "properties": {"fileReservedTime": "72"},
            }
        ],
        t.QUEUE: [
            {"topic": "quiet", "queueId": 0, "minOffset": 0, "maxOffset": 0},
            {"topic": "t", "queueId": 0, "minOffset": 0, "maxOffset": 30},
            {"topic": "t", "queueId": 1, "minOffset": 0, "maxOffset": 4},
        ],
        t.CONSUME_QUEUE: [
            {
                "topic": "t",
                "queueId": 0,
                "queueOffset": k,
                "physicOffset": 100 * k,
                "size": 100,
                "tagsCode": 0,
                "storeTimestamp": MIDNIGHT - HOUR,
            }
            for k in range(30)
        ],
        t.CONSUMER_OFFSET: [
            {"consumerGroup": name, "topic": "t", "queueId": 0, "consumerOffset": offset} for name, (offset, _) in GROUPS.items()
        ],
        t.STORE_FILE: [
            {
                "kind": "commitlog",
                "name": f"{1000 * number:020d}",
                "fromOffset": 1000 * number,
                "length": 1000,
                "mtimeMs": MIDNIGHT - age * HOUR,
                "path": f"commitlog/{1000 * number:020d}",
            }
            for number, age in enumerate(ages)
        ],
        t.COMMIT_LOG_SEGMENT: [
            {"firstPhysicOffset": 0, "minStoreTimestamp": MIDNIGHT - 100 * HOUR},
            {"firstPhysicOffset": 2140, "minStoreTimestamp": MIDNIGHT - HOUR},
        ],
        LAG_HISTORY: [
            {
                "consumerGroup": name,
                "topic": "t",
                "queueId": 0,
                "observedAt": MIDNIGHT - ago * HOUR,
                "consumerOffset": offset - consumed * ago // 10,
                "minOffset": 0,
            }
            for name, (offset, consumed) in GROUPS.items()
            if consumed is not None
            for ago in (10, 0)
        ],
    }


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("retention") / "lake"
    write_rows(spark, folder, BROKER, rows_of_broker())
    return folder


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def asked(pullsim: Pullsim, lake: Path, *options: object) -> dict[str, dict[str, Any]]:
    """Rows of queue 0 by group, times in hours since midnight."""
    code, out, err = pullsim("retention", "--lake", lake, "--format", "json", *options)
    assert code == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    for row in found:
        for name in ("deletedAt", "lossAt"):
            row[name] = None if row[name] is None else (row[name] - MIDNIGHT) / HOUR
    assert all(row["reason"] == "NO_OFFSET" for row in found if row["queueId"] == 1)
    return {row["consumerGroup"]: row for row in found if row["queueId"] == 0}


FORESEEN = ("nextFile", "deletedAt", "cause", "lossAt", "lossMessages", "lossBytes", "minOffsetThen", "neededReservedHours", "reason")
NONE = (None,) * 8
# the last file has room for 500 bytes, and 360 come in an hour: full after 1.4 hours, old enough 72 hours later, deleted at the next 04:00
LAST = 24 * 3 + 4


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=slow_proof)])
def test_each_group_is_told_what_it_loses_and_when(pullsim: Pullsim, lake: Path, engine: str) -> None:
    found = asked(pullsim, lake, "--engine", engine)
    assert {name: tuple(row[one] for one in FORESEEN) for name, row in found.items()} == {
        # half a message an hour: see test_log_retention; the last file, which ages from 01:23 on, it has done with at 50:00
        "slow": (0, 4, "FILE_RESERVED_TIME", 4, 3, 300, 10, 79, None),
        "stopped": (1000, 28, "FILE_RESERVED_TIME", 28, 8, 800, 20, None, None),
        "new": (0, 4, "FILE_RESERVED_TIME", *(None,) * 5, "NO_RATE"),
        # a tenth of a message an hour, so that it is through at 50:00 too
        "last": (2000, LAST, "FILE_RESERVED_TIME", None, None, None, None, 28, "IN_TIME"),
        "done": (*NONE, "NOTHING_WAITS"),
        "late": (0, 4, "FILE_RESERVED_TIME", *(None,) * 5, "NO_RATE"),
    }
    assert [(row["lostMessages"], row["consumedPerHour"]) for row in (found["slow"], found["new"])] == [(0, 0.5), (0, None)]
    if engine == "duckdb":  # Spark takes a quarter of a minute for each
        assert asked(pullsim, lake, "--topic", "t") == found
        assert asked(pullsim, lake, "--topic", "quiet") == {}


def test_brokers_of_a_lake_are_shown_together_each_by_its_own_files_and_settings(
    spark: SparkSession, pullsim: Pullsim, lake: Path, tmp_path: Path
) -> None:
    both = Path(shutil.copytree(lake, tmp_path / "lake"))
    rows = rows_of_broker()
    rows[t.BROKER] = [row | {"properties": {"fileReservedTime": "200"}} for row in rows[t.BROKER]]
    write_rows(spark, both, "patient", rows)
    write_rows(spark, both, "empty", {t.BROKER: [{}]})

    shown = ("retention", "--lake", both, "--format", "json")
    code, out, err = pullsim(*shown)
    assert code == 0, err
    alone = [pullsim(*shown, "--broker", name)[1] for name in (BROKER, "patient")]
    assert sorted(out.splitlines()) == sorted("".join(alone).splitlines())
    losses = [one["lossAt"] for one in map(json.loads, out.splitlines()) if one["lossAt"] is not None]
    assert losses == sorted(losses)
    code, out, err = pullsim("retention", "--lake", both, "--rate", "0", "--limit", "0")
    assert code == 0, err
    slow = [line.split() for line in out.splitlines() if " slow " in line]
    # the first file is 71 hours old at midnight; with 200 hours it goes 129 hours later, at the next 04:00
    assert [(line[0], f"{line[4]} {line[5]}") for line in slow] == [(BROKER, "2024-05-01 04:00:00"), ("patient", "2024-05-07 04:00:00")]
    code, _, err = pullsim("retention", "--lake", both, "--growth", "1")
    assert (code, "holds 3 brokers" in err) == (2, True)


@slow_proof
def test_what_is_given_counts(pullsim: Pullsim, lake: Path) -> None:
    given = ("--rate", "0", "--set", "fileReservedTime=24", "--set", "deleteWhen=05", "--growth", "0", "--time-zone", "Asia/Shanghai")
    found = asked(pullsim, lake, *given, "--at", MIDNIGHT + HOUR)
    assert tuple(found["new"][one] for one in FORESEEN) == (0, 21, "FILE_RESERVED_TIME", 21, 15, 1500, 20, None, None)
    assert found["last"]["reason"] == "NOT_DELETED"


@slow_proof
def test_a_disk_that_fills_up_deletes_what_is_not_old_enough(pullsim: Pullsim, lake: Path) -> None:
    # 3,000 bytes are used: 85 % of 4,000 are passed after 400 bytes, and again after 2,000 more, when the last file is full too
    found = asked(pullsim, lake, "--disk-size", "4000", "--growth", "1", "--group", "stopped")["stopped"]
    assert (found["cause"], found["lossMessages"]) == ("CLEAN_FILE_FORCIBLY", 18)
    assert found["lossAt"] * HOUR == pytest.approx(400_000, abs=2)


@pytest.mark.parametrize(("least", "hours", "told"), [(3, 71, "2 d 23 h"), (3, 72, None), (0, 71, None)])
def test_a_log_that_begins_after_young_messages_was_deleted_by_another_rule(
    pullsim: Pullsim, tmp_path: Path, least: int, hours: int, told: str | None
) -> None:
    rows = rows_of_broker()
    rows[t.QUEUE][1]["minOffset"] = least
    rows[t.COMMIT_LOG_SEGMENT][0]["minStoreTimestamp"] = MIDNIGHT - hours * HOUR
    named = {table.name: [{"brokerName": BROKER, **row} for row in of_table] for table, of_table in rows.items()}
    code, out, err = pullsim("retention", "--lake", plain_lake(tmp_path / "lake", named))
    assert code == 0, err
    words = f"files were deleted though the oldest message is only {told} old: a full disk"
    assert (words in on_one_line(out)) == (told is not None)
    assert ("deleted though" in on_one_line(out)) == (told is not None)


@pytest.mark.parametrize("last", [-(2**63), -1, 2**63 - 1])
def test_a_broker_whose_newest_message_has_an_impossible_time_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: int
) -> None:
    rows = rows_of_broker()
    of_both = {table.name: [{"brokerName": name, **row} for row in found for name in ("b", "damaged")] for table, found in rows.items()}
    of_both["broker"] = [row | {"maxStoreTimestamp": MIDNIGHT if row["brokerName"] == "b" else last} for row in of_both["broker"]]
    lake = plain_lake(tmp_path / "lake", of_both)
    shown = ["retention", "--lake", str(lake), "--format", "json"]
    assert run(shown) == 0
    out, err = capsys.readouterr()
    assert {json.loads(line)["brokerName"] for line in out.splitlines()} == {"b"}
    assert f"broker 'damaged' is left out: expected a newest message from 1970 to the year 9999, in ms, found {last}; give a time" in err
    assert run([*shown, "--broker", "damaged"]) == 2
    err = capsys.readouterr().err
    assert f"broker 'damaged': expected a time from 1970 to the year 9999 to look ahead from, in ms, found {last}" in err
    assert run([*shown, "--at", str(MIDNIGHT)]) == 0
    assert {json.loads(line)["brokerName"] for line in capsys.readouterr().out.splitlines()} == {"b", "damaged"}


@slow_proof
def test_people_read_times_and_are_told_of_files_that_lost_theirs(pullsim: Pullsim, spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of_broker()
    rows[t.STORE_FILE] = [row | {"mtimeMs": MIDNIGHT + 28 * HOUR} for row in rows[t.STORE_FILE]]
    write_rows(spark, tmp_path / "lake", BROKER, rows)
    code, out, err = pullsim("retention", "--lake", tmp_path / "lake", "--growth", "0", "--disk-size", "4K", "--disk-used", "1K")
    assert code == 0
    # 72 hours after the first message of the last file, an hour before midnight, it is 23:00
    assert "2024-05-04 04:00:00" in out
    assert "the times of their messages are taken" in on_one_line(out)
    assert "copied" not in err
    assert "copied without their times" in pullsim("retention", "--lake", tmp_path / "lake", "--format", "csv")[2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--group", "slo"), "the nearest known: 'slow'"),
        (("--topic", "quit"), "the nearest known: 'quiet'"),
        (("--set", "fileReservedTim=3"), "the nearest known name is fileReservedTime"),
        (("--time-zone", "Asia/Shanghay"), "expected a time zone"),
        (("--disk-size", "many"), "expected bytes such as 500G"),
        (("--disk-size", "2K"), "--disk-size: expected 3,000 bytes or more"),
        (("--disk-used", "2K"), "--disk-used cannot be used without --disk-size"),
        (("--at", "-5"), "from 1970 to the year 9999"),
        (("--broker", "other"), "expected broker 'other'"),
    ],
)
def test_what_cannot_be_is_refused(pullsim: Pullsim, lake: Path, options: tuple[str, ...], says: str) -> None:
    code, out, err = pullsim("retention", "--lake", lake, *options)
    assert (code, out) == (2, "")
    assert says in err
