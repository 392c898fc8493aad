"""Lets the real broker generate stores and answer pulls. Some pulls are made up, to find what recorded pulls miss."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.makers.sql92_expressions import ExpressionMaker
from tests.runs.replaying import Line, all_lines
from tests.truth.golden import shared_dir
from udfs.filters.sql92 import Compiled, compile_expression

ENTRY_BYTES = 20
SEGMENT = 8192  # entries in a row of consume_queue_segment
WINDOW = 800  # entries that a pull scans at most

# for each profile, the settings of the stores to generate: file sizes that are odd, small, or no whole number of entries
PROFILES: Mapping[str, tuple[str, ...]] = {
    "basic": ("", "mappedFileSizeConsumeQueue=6001", "mappedFileSizeCommitLog=150001,mappedFileSizeConsumeQueue=41"),
    "small": ("", "mappedFileSizeConsumeQueue=25", "mappedFileSizeCommitLog=40003,mappedFileSizeConsumeQueue=333"),
    "window": ("", "mappedFileSizeConsumeQueue=15981", "mappedFileSizeConsumeQueue=16020", "mappedFileSizeConsumeQueue=400000"),
    "cleaned": ("", "mappedFileSizeConsumeQueue=100", "mappedFileSizeCommitLog=90001,mappedFileSizeConsumeQueue=777"),
    "holes": ("", "mappedFileSizeConsumeQueue=402", "mappedFileSizeConsumeQueue=40001"),
    "preblank0": ("", "mappedFileSizeConsumeQueue=333"),
    "preblank1": ("", "mappedFileSizeConsumeQueue=999"),
    "lmq": ("", "mappedFileSizeConsumeQueue=61"),
    "replica": ("", "mappedFileSizeConsumeQueue=457"),
    "delayreal": ("", "mappedFileSizeConsumeQueue=399"),
    "ext": ("", "mappedFileSizeConsumeQueueExt=333", "mappedFileSizeConsumeQueue=500,mappedFileSizeConsumeQueueExt=65536"),
    "extmix": ("", "mappedFileSizeConsumeQueue=1500,mappedFileSizeConsumeQueueExt=999"),
}
# with this many messages the longest queue is longer than a segment, in one file of 400,000 bytes
LONG_QUEUES = {"mappedFileSizeConsumeQueue=400000": "30000"}

CAPS = (0, 1, -1, 2, 8, 32, 100, 500, 1000, 20_000, 65_536, 2**31 - 1, -(2**31))
RATIOS = (0, 1, 7, 33, 40, 50, 99, 100, 101, -1, 2**31 - 1)
MAX_MSG_NUMS = (-(2**31), -1, 0, 1, 2, 3, 16, 31, 32, 33, 64, 799, 800, 801, 802, 1000, 1601, 5000, 9000, 100_000)
HUGE_MAX_MSG_NUMS = (107_374_183, 2**31 - 2, 2**31 - 1)
# properties of the messages that the harness makes
PROPERTIES = ("price", "color", "vip", "weight", "region", "TAGS", "KEYS", "UNIQ_KEY", "none", "RETRY_TOPIC", "DELAY", "REAL_TOPIC")
SQL92 = ("price > 50", "price BETWEEN 20 AND 60", "color IN ('red', 'Red')", "color IS NULL", "vip = TRUE", "weight < 2.5", "TAGS = 'TagA'")
UNKNOWN_QUEUES = (("NoSuchTopic", 0), ("NoSuchTopic", -1), ("", 0), ("%LMQ%x", 0), ("%LMQ%x", 1), ("%RETRY%x", 0), ("ü🚀", 0), ("../x", 0))


class Bounds(NamedTuple):
    """Bounds of a queue, as the broker reports them."""

    min_offset: int
    max_offset: int


def harness() -> Path:
    """The path of the command that runs the real broker's code."""
    here = shared_dir()
    assert here is not None
    return here / "oracle" / "oracle"


def needs_oracle() -> list[pytest.MarkDecorator]:
    """The marks of a test that runs the real broker: `oracle`, and a skip if the harness or Java is missing."""
    missing = shared_dir() is None or not harness().exists() or shutil.which("java") is None
    return [pytest.mark.oracle, pytest.mark.skipif(missing, reason="the real broker's harness or Java is not here")]


def oracle(*arguments: str | Path, version: str = "4.9.3") -> None:
    asked = os.environ | {"ORACLE_VERSION": version}
    subprocess.run([harness(), "store", *arguments], check=True, capture_output=True, timeout=240, env=asked)


def load(store: Path, config: Mapping[str, Any], out: Path, *, version: str = "4.9.3") -> dict[str, Any]:
    """Let a version of the broker load, start and shut down a store that other software made; returns the result."""
    given = ",".join(f"{name}={_text(value)}" for name, value in config.items())
    command: list[str | Path] = [harness(), "load", "--store", store, "--out", out, "--config", given]
    subprocess.run(command, check=True, capture_output=True, timeout=240, env=os.environ | {"ORACLE_VERSION": version})
    told: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return told


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def generate(store: Path, profile: str, seed: int, config: str, *, version: str = "4.9.3") -> Path:
    """Let a version of the broker write a store of a profile; returns its directory."""
    given = ["--config", config] if config else []
    count = ["--n", LONG_QUEUES[config]] if config in LONG_QUEUES else []
    oracle("generate", "--profile", profile, "--seed", str(seed), "--out", store, *given, *count, version=version)
    return store


def ask(store: Path, out: Path, config: Mapping[str, Any], *, requests: Sequence[Line] = (), seed: int = 1, version: str = "4.9.3") -> Path:
    """Write a trace of a version's answers: to `requests`, to pulls at both ends of queues, random pulls, and pulls that drain queues."""
    asked = out.with_suffix(".requests")
    asked.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in requests), encoding="utf-8")
    given = ["--config", ",".join(f"{name}={value}" for name, value in config.items())] if config else []
    more = ["--edges", "--random", "150", "--drain", "60", "--seed", str(seed)]
    oracle("trace", "--store", store, "--requests", asked, "--out", out, *more, *given, version=version)
    return out


def queues_of(trace: Path) -> dict[tuple[str, int], Bounds]:
    """The bounds of each queue that a trace pulls from and that is not empty."""
    found = {}
    for line in all_lines(trace)[1:]:
        response = line["response"] or {}
        if response.get("maxOffset"):
            found[line["request"]["topic"], line["request"]["queueId"]] = Bounds(response["minOffset"], response["maxOffset"])
    return found


def trace_config(digits: random.Random, log_end: int) -> dict[str, Any]:
    """Random settings for a broker that answers a trace."""
    config: dict[str, Any] = {}
    if digits.random() < 0.4:
        config |= {"brokerRole": digits.choice(["SLAVE", "SLAVE", "SYNC_MASTER"]), "offsetCheckInSlave": digits.choice(["true", "false"])}
    for what in ("Bytes", "Count"):
        for where in ("Memory", "Disk"):
            if digits.random() < 0.5:
                config[f"maxTransfer{what}OnMessageIn{where}"] = digits.choice(CAPS)
    if digits.random() < 0.5:
        config["accessMessageInMemoryMaxRatio"] = digits.choice(RATIOS)
    if digits.random() < 0.7:
        config["memory"] = digits.choice([0, 1, -5, log_end, log_end // 2, 2**63 - 1, digits.randint(1, log_end * 3)])
    if digits.random() < 0.2:
        config["diskFallRecorded"] = "false"
    if digits.random() < 0.05:
        config["readable"] = "false"
    if digits.random() < 0.4:
        both = digits.choice(["true", "true", "false"])
        config |= {"enableLmq": "true", "enableMultiDispatch": both, "maxLmqConsumeQueueNum": digits.choice([-1, 0, 1, 3, 5, 6, 7, 20])}
    if digits.random() < 0.3:
        config["filterSupportRetry"] = "true"
    if digits.random() < 0.2:
        config["enableConsumeQueueExt"] = digits.choice(["true", "false"])
    return config


class FilterMaker:
    """Makes filters of every kind for the messages of a store that the broker wrote."""

    def __init__(self, meta: Mapping[str, Any], digits: random.Random) -> None:
        self.tags: Sequence[str] = meta["tags"]
        self.consumers: Sequence[Mapping[str, Any]] = meta.get("consumers") or ()
        self.digits = digits
        self.expressions = ExpressionMaker(digits.random().hex(), PROPERTIES)

    def changed(self, pull: dict[str, Any]) -> dict[str, Any]:
        """The pull with a filter, or without one."""
        chance, fitting = self.digits.random(), [one for one in self.consumers if one["topic"] == pull["topic"]]
        if chance < 0.3:
            return pull | {"filter": None}
        if chance < 0.65:
            return pull | {"filter": {"type": "TAG", "expression": _expression(self.tags, self.digits)}}
        if fitting and self.digits.random() < 0.5:
            one = self.digits.choice(fitting)
            return pull | {"group": one["group"], "filter": {"type": "SQL92", "expression": one["expression"], "registered": True}}
        return pull | {"filter": {"type": "SQL92", "expression": self.sql92(), "registered": False}}

    def sql92(self) -> str:
        """A SQL92 expression that compiles. For one that does not, a broker still reads the store, but the harness does not."""
        while self.digits.random() < 0.6:
            text = self.expressions.disjunction(2)
            if isinstance(compile_expression(text), Compiled):
                return text
        return self.digits.choice(SQL92)


def thought_up(trace: Path, meta: Mapping[str, Any], digits: random.Random, count: int) -> list[Line]:
    """Pulls around every boundary of the queues in a trace, of every size, with filters of every form; `meta` is that of the store."""
    filters = FilterMaker(meta, digits)
    queues = queues_of(trace)
    entries_a_file = all_lines(trace)[0]["config"]["mappedFileSizeConsumeQueue"] // ENTRY_BYTES
    about = [(queue, offset) for queue, bounds in queues.items() for offset in _offsets(bounds, entries_a_file, digits)]
    places = digits.sample(about, min(count, len(about)))
    longest = max(queues, key=lambda queue: queues[queue].max_offset)
    places += [(longest, digits.randint(*queues[longest])) for _ in MAX_MSG_NUMS]
    sizes = [digits.choice(MAX_MSG_NUMS) for _ in about[:count]] + [*MAX_MSG_NUMS]
    more = [*UNKNOWN_QUEUES, (longest[0], -1), (longest[0], 2**31 - 1), (longest[0], -(2**31))]
    places += [(queue, offset) for queue in more for offset in (0, -1, 5, 2**63 - 1)] + [(longest, queues[longest].min_offset)] * 3
    sizes += [digits.choice([0, 1, 32, -1]) for _ in more for _ in range(4)] + [*HUGE_MAX_MSG_NUMS]
    asked = [_pull(*queue, offset, wanted, filters) for (queue, offset), wanted in zip(places, sizes, strict=True)]
    digits.shuffle(asked)
    return asked


def _offsets(bounds: Bounds, entries_a_file: int, digits: random.Random) -> Iterator[int]:
    low, high = bounds
    edges = [low, high, 0, 2**31, (low + high) // 2, digits.randint(low, high)]
    for step in (entries_a_file, SEGMENT):
        starts = range(low // step * step, high + step + 1, step)
        edges += starts if len(starts) < 6 else digits.sample(starts, 5)
    edges += range(low // entries_a_file * entries_a_file, high, SEGMENT)[:4]
    yield from sorted({edge + step for edge in edges for step in (-WINDOW - 1, -WINDOW, 1 - WINDOW, -1, 0, 1)})
    # near the offsets at which offset * 20 overflows a long
    yield from (2**63 - 1, -(2**63), 2**62, 2**63 // 20, 2**63 // 20 + 1, -(2**63) // 20)


def _pull(topic: str, queue_id: int, offset: int, wanted: int, filters: FilterMaker) -> Line:
    group = f"g{filters.digits.randint(0, 3)}"
    pull = {"group": group, "topic": topic, "queueId": queue_id, "offset": offset, "maxMsgNums": wanted}
    return {"request": filters.changed(pull)}


def _expression(tags: Sequence[str], digits: random.Random) -> str:
    a, b = digits.choice(tags), digits.choice(tags)
    several = [f"{a}||{b}", f"{a} || {b}||", f"||{a}", f"|||{a}", f"{a}|||{b}", f"{a}|{b}", f"*||{a}"]
    blanks = [f" {a} ", f"\t{a}\n", f"\x1f{a}\x00", f"\u00a0{a}", f"\u3000{a}", f"\x85{a}", f"\u2028{a}", f'"\\{a}']
    odd = ["*", "", "* ", " *", " || ", "||| ", " ||", "|", "none", "\x00", "Ünï", "🚀", "Aa", "BB", "AaAa||BBBB", "polygenelubricants"]
    return digits.choice([digits.choice(several), digits.choice(blanks), digits.choice(odd), a, a])
