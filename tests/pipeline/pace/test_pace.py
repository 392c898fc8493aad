"""`pullsim pace`: which lines go into which file at which moment, for every pace and fault."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.main import run
from pipeline.pace.feed import feed_folder, feed_of
from pipeline.pace.request_pace import FILE_REQUESTS, LATE_TICKS, Faults, FedFile, Pace, Request, plan
from pipeline.requests.request_file import scan_file
from pipeline.stream.request_log import list_requests
from tests.runs.replaying import all_lines, read_lines, write_lines

SHARES = st.sampled_from([0.0, 0.2, 0.7, 1.0])
PACES = st.one_of(
    st.just(Pace()),
    st.builds(Pace, rate=st.sampled_from([0.5, 3.0, 40.0]), tick_seconds=st.sampled_from([0.25, 1.0, 7.0])),
    st.builds(Pace, speed=st.sampled_from([0.1, 1.0, 25.0]), tick_seconds=st.sampled_from([0.25, 1.0, 7.0])),
)
TIMES = st.lists(st.integers(0, 60_000), max_size=60)


def requests_at(times: Sequence[int]) -> list[Request]:
    """A request at each of these times, no two the same."""
    return [Request(f"line {number}", time) for number, time in enumerate(times)]


def planned(times: Sequence[int], pace: Pace, faults: Faults, seed: int = 0, loop: int = 1) -> list[FedFile]:
    return list(plan([requests_at(times)] * loop, pace, faults, seed))


def lines_of(files: Sequence[FedFile]) -> list[str]:
    return [line for file in files for line in file.lines]


def ticks_of(files: Sequence[FedFile]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for file in files:
        for line in file.lines:
            found.setdefault(line, []).append(file.tick)
    return found


@given(TIMES, PACES, SHARES, SHARES, SHARES, st.integers(0, 5), st.integers(1, 3))
def test_every_request_comes_and_nothing_else_where_none_is_lost(
    times: list[int], pace: Pace, late: float, duplicated: float, reordered: float, seed: int, loop: int
) -> None:
    faults = Faults(late=late, duplicated=duplicated, reordered=reordered)
    files = planned(times, pace, faults, seed, loop)
    came, asked = Counter(lines_of(files)), Counter(line for line, _ in requests_at(times) * loop)
    extra = came - asked
    assert came - extra == asked, "without the duplicated ones they are those that were asked"
    assert extra <= asked, "no request comes more than twice"
    assert duplicated or not extra
    assert extra == asked or duplicated < 1
    assert [file.tick for file in files] == sorted({file.tick for file in files}), "one file a tick"
    assert all(file.lines for file in files)


@given(TIMES, PACES, SHARES, st.integers(0, 5))
def test_without_faults_the_order_stays_and_what_is_lost_is_missing(times: list[int], pace: Pace, lost: float, seed: int) -> None:
    asked = [line for line, _ in requests_at(times)]
    came = lines_of(planned(times, pace, Faults(lost=lost), seed))
    assert came == [line for line in asked if line in set(came)]
    if lost in {0.0, 1.0}:
        assert came == (asked if lost == 0 else [])


@given(TIMES, PACES, st.integers(0, 5))
def test_a_late_request_comes_in_one_of_the_next_files(times: list[int], pace: Pace, seed: int) -> None:
    on_time = ticks_of(planned(times, pace, Faults()))
    late = ticks_of(planned(times, pace, Faults(late=1), seed))
    twice = ticks_of(planned(times, pace, Faults(duplicated=1), seed))
    for line, [tick] in on_time.items():
        assert tick < late[line][0] <= tick + LATE_TICKS
        assert twice[line][0] == tick <= twice[line][1] <= tick + LATE_TICKS


@given(TIMES, PACES, st.integers(0, 5))
def test_a_reordered_request_stays_in_its_file(times: list[int], pace: Pace, seed: int) -> None:
    assert ticks_of(planned(times, pace, Faults(reordered=1), seed)) == ticks_of(planned(times, pace, Faults()))


def test_reordering_reorders() -> None:
    [file] = planned([0] * 50, Pace(), Faults(reordered=1))
    assert list(file.lines) != [line for line, _ in requests_at([0] * 50)]


def test_about_the_share_asked_for_is_hit() -> None:
    count = 2000
    files = planned([0] * count, Pace(rate=100.0), Faults(lost=0.5, duplicated=0.25), seed=1)
    came = Counter(lines_of(files))
    assert abs(len(came) - count / 2) < 100
    assert abs(sum(times == 2 for times in came.values()) - count / 8) < 60


def test_a_seed_gives_the_same_files_and_another_one_others() -> None:
    faults = Faults(late=0.3, duplicated=0.3, reordered=0.3)
    pace = Pace(rate=10.0)
    assert planned([0] * 100, pace, faults, 1) == planned([0] * 100, pace, faults, 1) != planned([0] * 100, pace, faults, 2)


def test_a_share_does_not_change_to_whom_another_fault_happens() -> None:
    one, other = (Counter(lines_of(planned([0] * 100, Pace(), Faults(duplicated=0.3, late=late), 1))) for late in (0.0, 0.9))
    assert one == other


@given(st.integers(0, 200), st.integers(1, 50), st.integers(1, 8), st.integers(1, 3))
def test_a_rate_is_kept_exactly(count: int, rate: int, quarters: int, loop: int) -> None:
    files = planned([0] * count, Pace(rate=float(rate), tick_seconds=quarters / 4), Faults(), loop=loop)
    due: dict[Fraction, int] = {}
    for number in range(count * loop):
        end = (Fraction(number, rate) // Fraction(quarters, 4) + 1) * Fraction(quarters, 4)
        due[end] = due.get(end, 0) + 1
    assert {Fraction(file.at): len(file.lines) for file in files} == due
    assert [file.at for file in files] == [(file.tick + 1) * quarters / 4 for file in files]


def test_a_recorded_pace_by_hand() -> None:
    # ten times as quick: due after 0, 1, 1 (it went back), 2.5 and 2.9 s
    files = planned([5_000, 15_000, 9_000, 30_000, 34_000], Pace(speed=10.0), Faults())
    assert [(file.at, file.lines) for file in files] == [
        (1.0, ("line 0",)),
        (2.0, ("line 1", "line 2")),
        (3.0, ("line 3", "line 4")),
    ]


def test_a_round_begins_with_the_last_request_of_the_one_before() -> None:
    # due after 0, 2 and 2.5 s, then after 2.5, 4.5 and 5 s
    files = planned([100, 2_100, 2_600], Pace(speed=1.0), Faults(), loop=2)
    assert [(file.at, file.lines) for file in files] == [
        (1.0, ("line 0",)),
        (3.0, ("line 1", "line 2", "line 0")),
        (5.0, ("line 1",)),
        (6.0, ("line 2",)),
    ]


def test_as_fast_as_possible_means_full_files_at_once() -> None:
    files = planned([0] * (FILE_REQUESTS + 1), Pace(), Faults())
    assert [(file.at, len(file.lines)) for file in files] == [(0.0, FILE_REQUESTS), (0.0, 1)]


class VirtualClock:
    """A clock that only waiting moves, or `work` seconds each time it is read."""

    def __init__(self, *, work: float = 0.0, ends_at: float = 1e9) -> None:
        self.now, self.work, self.ends_at = 100.0, work, ends_at

    def __call__(self) -> float:
        self.now += self.work
        return self.now

    def wait(self, seconds: float) -> bool:
        assert seconds >= 0
        self.now += seconds
        return self.now >= 100.0 + self.ends_at


def request(offset: int, **more: object) -> dict[str, Any]:
    return {"request": {"group": "g", "topic": "t", "queueId": 0, "offset": offset, "maxMsgNums": 32, "filter": None} | more}


HEADER = {"kind": "trace", "config": {"brokerRole": "SLAVE"}, "seed": 7}
RECORDED = [request(number, timestamp=1000 * number) for number in range(10)]


def test_files_come_when_they_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, count = feed_of(str(write_lines(tmp_path / "in.jsonl", RECORDED)), pace=Pace(speed=2.0), faults=Faults(), seed=0, loop=1)
    clock, moments = VirtualClock(), []
    content = type(feed).content

    def timed(self: Any, file: Any) -> Any:
        moments.append(clock.now)
        return content(self, file)

    monkeypatch.setattr(type(feed), "content", timed)
    done = feed_folder(feed, str(tmp_path / "incoming"), clock=clock, wait=clock.wait)
    assert (count, done.files, done.requests, done.late_seconds) == (10, 5, 10, 0)
    assert moments == [101, 102, 103, 104, 105]

    slow = VirtualClock(work=0.75)
    assert feed_folder(feed, str(tmp_path / "slowly"), clock=slow, wait=slow.wait).late_seconds > 0


def test_a_feed_that_is_told_to_end_ends_behind_its_file(tmp_path: Path) -> None:
    feed, _ = feed_of(str(write_lines(tmp_path / "in.jsonl", RECORDED)), pace=Pace(speed=1.0), faults=Faults(), seed=0, loop=1)
    clock = VirtualClock(ends_at=4)
    assert feed_folder(feed, str(tmp_path / "incoming"), clock=clock, wait=clock.wait).files == 3
    names = sorted(os.listdir(tmp_path / "incoming"))
    before = {name: os.stat(tmp_path / "incoming" / name).st_mtime_ns for name in names}

    # started again, it leaves what is there and puts the rest
    again = VirtualClock()
    done = feed_folder(feed, str(tmp_path / "incoming"), clock=again, wait=again.wait)
    assert (done.files, done.were_there) == (7, 3)
    assert before == {name: os.stat(tmp_path / "incoming" / name).st_mtime_ns for name in names}
    fed = [line for name in sorted(os.listdir(tmp_path / "incoming")) for line in read_lines(tmp_path / "incoming" / name)]
    assert fed == RECORDED


def fed_into(folder: Path) -> list[Path]:
    """The files of a folder in the order in which a stream takes them."""
    return [Path(file.path) for file in list_requests(str(folder))]


@pytest.mark.parametrize("header", [[HEADER], []], ids=["with a header", "without one"])
def test_each_file_has_the_header_and_a_content_of_its_own(
    tmp_path: Path, header: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    same = [request(5)] * 3
    file = write_lines(tmp_path / "in.jsonl", [*header, *same])
    folder = tmp_path / "incoming"
    assert run(["pace", str(file), "--into", str(folder), "--rate", "2000", "--tick", "0.001", "--loop", "4"]) == 0
    out, err = capsys.readouterr()
    assert out == f"fed 12 requests in 6 files into {folder}\n"
    assert "feeding the 3 requests of" in err
    files = fed_into(folder)
    assert len({hashlib.sha256(path.read_bytes()).hexdigest() for path in files}) == 6, "the stream answers a content once"
    for number, path in enumerate(files):
        first = all_lines(path)[0]
        assert {name: value for name, value in first.items() if name != "pace"} == (header[0] if header else {"kind": "trace"})
        assert first["pace"]["file"] == number
        assert (scan_file(str(path)).header or {}).get("config") == (HEADER["config"] if header else None)
        assert read_lines(path) == same[:2]
    assert len(os.listdir(folder)) == 6


def test_lines_are_fed_as_they_are(tmp_path: Path) -> None:
    odd = '{ "request" : {"topic":"t\\u00e4", "group":"g","queueId":0,"offset":1,"maxMsgNums":1,"filter":null}, "more": [1.50] }'
    file = tmp_path / "in.jsonl"
    file.write_text(f"{odd}\n\n{json.dumps(request(2))}")
    assert run(["pace", str(file), "--into", str(tmp_path / "incoming")]) == 0
    [fed] = fed_into(tmp_path / "incoming")
    assert fed.read_text().split("\n")[1:] == [odd, json.dumps(request(2)), ""]


def test_options_make_another_feed(tmp_path: Path) -> None:
    path = str(write_lines(tmp_path / "in.jsonl", RECORDED))
    feed, _ = feed_of(path, pace=Pace(), faults=Faults(), seed=0, loop=1)
    others = [
        replace(feed, pace=Pace(rate=1.0)),
        replace(feed, faults=Faults(late=0.1)),
        replace(feed, seed=1),
        replace(feed, loop=2),
        feed_of(str(write_lines(tmp_path / "other.jsonl", RECORDED[1:])), pace=Pace(), faults=Faults(), seed=0, loop=1)[0],
    ]
    assert len({feed.id, *(other.id for other in others)}) == 6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--speed", "1"], 'in.jsonl, line 2: expected a "timestamp" in ms in the request, for --speed, found none; give --rate instead'),
        (["--speed", "1", "--rate", "2"], "--speed cannot be combined with --rate"),
        (["--rate", "nan"], "expected a number above 0, found nan"),
        (["--tick", "0"], "expected a number above 0, found 0.0"),
        (["--faults", "later=0.1"], "found 'later=0.1'"),
        (["--faults", "late=0.1,late=0.2"], "found 'late=0.2'"),
        (["--faults", "late"], "found 'late'"),
        (["--faults", "lost=1.01"], "found 'lost=1.01'"),
        (["--loop", "0"], "--loop"),
    ],
)
def test_what_cannot_be_fed_is_refused(tmp_path: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_lines(tmp_path / "in.jsonl", [request(1, timestamp=1), request(2)])
    assert run(["pace", str(file), "--into", str(tmp_path / "incoming"), *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "incoming").exists()


def test_a_bad_line_and_a_bad_folder_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps(request(1)) + "\nno json\n")
    assert run(["pace", str(bad), "--into", str(tmp_path / "incoming")]) == 2
    assert "bad.jsonl, line 2: expected a JSON object" in capsys.readouterr().err
    good = write_lines(tmp_path / "good.jsonl", [request(1)])
    assert run(["pace", str(good), "--into", str(bad)]) == 2
    assert f"{bad}: expected a folder that files can be put into" in capsys.readouterr().err
    assert run(["pace", str(tmp_path / "none.jsonl"), "--into", str(tmp_path / "incoming")]) == 2
    assert "none.jsonl, line 1: expected a file of requests" in capsys.readouterr().err
