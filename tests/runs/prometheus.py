"""A strict reader of Prometheus' text format 0.0.4, written from its description alone. What the format does not allow is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(r'(?P<name>[^\s{]+)(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")+)\})? (?P<value>\S+)')
VALUE = re.compile(r"[+-]?Inf|NaN|[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
ESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}

Labels = frozenset[tuple[str, str]]


@dataclass
class Metric:
    """A metric that was read."""

    help: str
    type: str = ""
    series: dict[Labels, float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Metric]:
    """The metrics of a text. Each must have HELP, TYPE and at least one series, in this order and in one piece, no two series the same."""
    assert text == "" or text.endswith("\n")
    found: dict[str, Metric] = {}
    name = ""
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            assert not found or found[name].series, f"{name} has no series"
            name, _, told = line.removeprefix("# HELP ").partition(" ")
            assert NAME.fullmatch(name), line
            assert name not in found, f"{name} comes in two pieces"
            assert not re.search(r"\\(?![\\n])", told.replace("\\\\", "")), line
            found[name] = Metric(unescaped(told))
        elif line.startswith("# TYPE "):
            of, _, kind = line.removeprefix("# TYPE ").partition(" ")
            assert (of, found[name].type, found[name].series) == (name, "", {}), line
            assert kind in {"counter", "gauge"}, line
            found[name].type = kind
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            assert sample["name"] == name, line
            assert VALUE.fullmatch(sample["value"]), line
            labels = labels_of(sample["labels"] or "")
            assert found[name].type, f"{name} has no type"
            assert labels not in found[name].series, line
            found[name].series[labels] = float(sample["value"])
    assert not found or found[name].series, f"{name} has no series"
    return found


def labels_of(text: str) -> Labels:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        one = LABEL.match(text, at)
        assert one, text
        assert one[1] not in labels, text
        assert not one[1].startswith("__"), text
        labels[one[1]] = unescaped(one[2])
        at = one.end()
    return frozenset(labels.items())


def unescaped(text: str) -> str:
    return re.sub(r'\\[\\n"]', lambda escape: ESCAPED[escape[0]], text)


def series(metric: Metric, *names: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by the values of the labels `names`, which must differ between all series."""
    found = {tuple(dict(labels)[name] for name in names): value for labels, value in metric.series.items()}
    assert len(found) == len(metric.series)
    return found
