"""Metrics as Prometheus reads them: its text format, version 0.0.4.

Source: "Exposition formats" of the Prometheus documentation: a HELP and a TYPE line a metric, then a line a series; backslash and line feed
are escaped in help texts, and in the values of labels the quotation mark too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL = _IN_HELP | str.maketrans({'"': r"\""})


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of one series, and its labels."""

    value: float
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name, what it is, its type, its series."""

    name: str
    help: str
    type: Literal["counter", "gauge"]
    samples: tuple[Sample, ...]


def metrics_text(families: Iterable[Family]) -> str:
    """The metrics that have any series, as text."""
    return "".join(f"{line}\n" for family in families if family.samples for line in _lines(family))


def _lines(family: Family) -> list[str]:
    head = [f"# HELP {family.name} {family.help.translate(_IN_HELP)}", f"# TYPE {family.name} {family.type}"]
    return head + [f"{family.name}{_labels(sample.labels)} {_value(sample.value)}" for sample in family.samples]


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_IN_LABEL)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _value(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
