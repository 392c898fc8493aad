"""The rules of cleaning, compared with the broker's own classes, which delete files in a program of ours (data/java/CleanFiles.java)."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.truth.golden import meta_of
from tests.truth.oracle import harness, needs_oracle
from tests.truth.places import DATA
from udfs.cleaning.clean_commit_log import HOUR, CleanSettings, deleted_by_time, deleted_in_pass, is_time_to_delete, parse_delete_when
from udfs.cleaning.log_retention import Outlook, Share, loss_of

pytestmark = needs_oracle()
UTC = ZoneInfo("UTC")
SOURCE = DATA / "java" / "CleanFiles.java"
MINUTE = 60_000
Row = dict[str, Any]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    """The command that runs the program."""
    told = subprocess.run([harness(), "jars"], check=True, capture_output=True, text=True, timeout=600).stdout.split()
    lib = os.environ.get("ORACLE_LIB") or f"{told[-1]}/lib-4.9.3"
    folder = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-nowarn", "-cp", f"{lib}/*", "-d", folder, SOURCE], check=True, capture_output=True, timeout=120)
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.nio.ch", "jdk.internal.ref")]
    work = tmp_path_factory.mktemp("work")
    given = ["-Duser.timezone=UTC", f"-Duser.home={work}", f"-Djava.io.tmpdir={work}", "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.999"]
    return ["java", *opened, *given, "-cp", f"{folder}:{lib}/*", "CleanFiles"]


def asked(program: Sequence[str | Path], cases: Sequence[Row]) -> list[Row]:
    """Run the program on the cases; returns the result of each."""
    text = "\n".join(map(json.dumps, cases))
    run = subprocess.run(program, input=text, check=True, capture_output=True, text=True, timeout=240)
    answers = [json.loads(line[1:]) for line in run.stdout.splitlines() if line.startswith("=")]
    assert len(answers) == len(cases)
    return answers


def names(numbers: range, size: int) -> list[str]:
    return [f"{number * size:020d}" for number in numbers]


def test_an_hour_of_delete_when_is_that_of_the_brokers_clock(program: list[str | Path]) -> None:
    now = int(time.time() * 1000)
    zones = ("UTC", "Asia/Shanghai", "Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe")
    hours = [(now // HOUR + shift) % 24 for shift in range(24)]
    texts = ["", ";", ";;", "x", "04;x", "24", "-1", " 4", "4 ", "+4", "٤", "99999999999", *(f"{hour:02d}" for hour in hours)]
    texts += [f"{hour};x" for hour in hours] + [f"x;{hour}" for hour in hours[:3]] + [f";{hour}" for hour in hours[:3]]
    texts += [";".join(map(str, hours)), ";".join(map(str, hours)) + ";", f"{hours[3]};{hours[9]};;"]
    cases = [{"kind": "when", "zone": zone, "when": text} for zone in zones for text in texts]
    for case, answer in zip(cases, asked(program, cases), strict=True):
        when = parse_delete_when(case["when"])
        said = {
            True if is_time_to_delete(when, answer[at], ZoneInfo(case["zone"])) else "NumberFormatException" if when.is_broken else False
            for at in ("before", "after")
        }
        assert answer["is"] in said, case


def drawn_ages(chance: random.Random) -> list[int]:
    """Ages of files about some hours, a minute off each full one, seldom in order."""
    ages = [chance.randrange(6) * HOUR + chance.choice((-MINUTE, MINUTE)) for _ in range(chance.randrange(26))]
    return sorted(ages, reverse=True) if chance.random() < 0.7 else ages


def test_expired_files_are_deleted_as_mapped_file_queue_does(program: list[str | Path]) -> None:
    chance = random.Random(5)
    cases: list[Row] = [
        {"kind": "files", "ages": drawn_ages(chance), "expired": chance.randrange(-1, 6) * HOUR, "immediately": chance.random() < 0.2}
        for _ in range(300)
    ]
    counts = set()
    for case, answer in zip(cases, asked(program, cases), strict=True):
        settings = CleanSettings(file_reserved_time=case["expired"] // HOUR)
        modified = [answer["before"] - age for age in case["ages"]]
        count = deleted_by_time(modified, answer["before"], settings, clean_at_once=case["immediately"])
        assert answer["deleted"] == count, case
        assert answer["left"] == names(range(count, len(modified)), 1024)
        counts.add(count)
    assert counts == set(range(11))


def pass_cases(percent: int) -> list[Row]:
    chance, hour = random.Random(7), time.gmtime().tm_hour
    cases: list[Row] = []
    for _ in range(60):
        ratio = percent + chance.randrange(-1, 2)
        when = chance.choice((f"{hour:02d}", f"{(hour + 12) % 24:02d}", f"{hour};x", "x", f"x;{hour}"))
        settings = {
            "fileReservedTime": chance.randrange(5),
            "deleteWhen": when,
            "diskMaxUsedSpaceRatio": chance.choice((ratio, ratio, 95)),
            "cleanFileForciblyEnable": chance.random() < 0.7,
        }
        forcibly = (percent + chance.randrange(-1, 2)) / 100
        cases.append(
            {"kind": "pass", "ages": drawn_ages(chance), "settings": settings, "forcibly": str(forcibly), "manually": chance.random() < 0.2}
        )
    return cases


def test_a_pass_deletes_what_clean_commit_log_service_does(program: list[str | Path], monkeypatch: pytest.MonkeyPatch) -> None:
    [first] = asked(program, [{"kind": "pass", "ages": [], "settings": {}, "forcibly": "0.85", "manually": False}])
    cases = pass_cases(first["percentBefore"])
    seen = set()
    for case, answer in zip(cases, asked(program, cases), strict=True):
        if answer["before"] // HOUR != answer["after"] // HOUR or answer["percentBefore"] != answer["percentAfter"]:
            continue  # the hour or the disk changed under it
        monkeypatch.setattr("udfs.cleaning.clean_commit_log.CLEAN_FORCIBLY_PERCENT", round(float(case["forcibly"]) * 100))
        given = case["settings"]
        settings = CleanSettings(
            file_reserved_time=given["fileReservedTime"],
            delete_when=given["deleteWhen"],
            disk_max_used_space_ratio=given["diskMaxUsedSpaceRatio"],
            clean_file_forcibly_enable=given["cleanFileForciblyEnable"],
        )
        modified = [answer["before"] - age for age in case["ages"]]
        count = deleted_in_pass(modified, answer["before"], settings, percent=answer["percentBefore"], zone=UTC, manually=case["manually"])
        assert answer["left"] == names(range(count, len(modified)), 1024), case
        seen.add(count)
    assert len(seen) > 5


def entries_of(queue: Path, size: int) -> list[tuple[int, int, int]]:
    """(queueOffset, physicOffset, size) of each entry of a queue."""
    found = []
    for path in sorted(queue.iterdir()):
        for position in range(0, size, 20):
            offset, length, _ = struct.unpack_from(">qiq", path.read_bytes(), position)
            if length > 0:
                found.append(((int(path.name) + position) // 20, offset, length))
    return found


@pytest.mark.parametrize("deleted", [0, 1, 4, 6])
def test_the_begin_of_each_queue_follows_the_log(program: list[str | Path], small_store: Path, tmp_path: Path, deleted: int) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_store, store)
    config: Mapping[str, str] = meta_of(small_store)["config"]
    log_size, queue_size = int(config["mappedFileSizeCommitLog"]), int(config["mappedFileSizeConsumeQueue"])
    files = len(list((store / "commitlog").iterdir()))
    assert files == 7
    settings = {**config, "fileReservedTime": 2, "deleteWhen": ";".join(map(str, range(24)))}
    ages = [3 * HOUR] * deleted + [HOUR] * (files - deleted)
    paths = {f"{path.parent.name}/{path.name}": path for path in (store / "consumequeue").glob("*/*")}
    queues = {queue: entries_of(path, queue_size) for queue, path in paths.items()}
    [answer] = asked(program, [{"kind": "store", "store": str(store), "ages": ages, "settings": settings}])
    assert answer["left"] == names(range(deleted, files), log_size)
    assert answer["minPhyOffset"] == deleted * log_size
    outlook = Outlook(since=0, zone=UTC, settings=CleanSettings())
    aging: dict[int, int | None] = {number * log_size: 0 for number in range(deleted, files)}
    for queue, entries in queues.items():
        by_file: dict[int, list[tuple[int, int, int]]] = {}
        for entry in entries:
            by_file.setdefault(entry[1] - entry[1] % log_size, []).append(entry)
        shares = [Share(start, mine[0][0], mine[-1][0] + 1, sum(one[2] for one in mine)) for start, mine in sorted(by_file.items())]
        former = answer["minOffsetsBefore"][queue]
        loss = loss_of(shares, former, 0.0, outlook, {}, aging, former)
        gone = [entry for entry in entries if entry[1] < deleted * log_size]
        assert (loss.messages or 0, loss.size or 0) == (len(gone), sum(entry[2] for entry in gone))
        assert answer["minOffsets"][queue] == (former if loss.min_offset is None else loss.min_offset), queue
