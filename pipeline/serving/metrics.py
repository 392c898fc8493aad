"""Metrics for Prometheus: make them, write them as text, and publish them in a file or on an HTTP port."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from wsgiref.types import WSGIApplication

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipeline.files.output_file import OutputError
from pipeline.files.whole_file import whole_file
from pipeline.serving.http_server import is_address, serving

PATH = "/metrics"

# publishes all metrics; raises OutputError if the target cannot be written
Publish = Callable[[Sequence[Metric]], None]


def metric(kind: Literal["counter", "gauge"], name: str, text: str, series: Iterable[tuple[Mapping[str, str], float]]) -> Metric:
    """Return a metric with its type, name and help text, and a value for each set of labels.

    The name of a counter ends in _total. All sets of labels have the same names.
    """
    found = list(series)
    labels = list(found[0][0]) if found else []
    made = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, text, labels=labels)
    for values, value in found:
        made.add_metric([values[label] for label in labels], value)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetrics:
    """Makes the metrics of a run that goes on until it is stopped.

    Attributes:
        what: what runs, one word: the names begin with pullsim_ and this word.
        labels: labels of all metrics.
    """

    what: str
    labels: Mapping[str, str]

    def one(self, name: str, text: str, value: float | None, kind: Literal["counter", "gauge"] = "gauge") -> Metric:
        """Return a metric with one value, or without a value if `value` is None."""
        return metric(kind, f"pullsim_{self.what}_{name}", text, () if value is None else ((self.labels, value),))

    def course(self, now: dt.datetime, *, started: dt.datetime, ended: dt.datetime | None, failed: bool) -> list[Metric]:
        """Return the metrics that say whether the run goes on at `now`; `ended` is None while it does."""
        return [
            self.one("running", f"1 while the {self.what} runs, 0 once it has ended.", int(ended is None)),
            self.one("failed", f"1 where an error ended the {self.what}.", int(failed)),
            self.one("start_time_seconds", f"When the {self.what} was started.", started.timestamp()),
            self.one("end_time_seconds", f"When the {self.what} ended.", ended.timestamp() if ended else None),
            self.one("report_time_seconds", "When these metrics were made.", now.timestamp()),
        ]


@dataclass(slots=True)
class LastingPublish:
    """Publishes repeatedly. Until the first success, an error is raised; after it, an error is reported once, and the next try may succeed.

    Attributes:
        publish: publishes once.
        progress: called with the text of an error.
    """

    publish: Publish
    progress: Callable[[str], None]
    _has_published: bool = False
    _reported: str = ""

    def __call__(self, metrics: Sequence[Metric]) -> None:
        """Publish the metrics.

        Raises:
            OutputError: the target could not be written, and never was.
        """
        try:
            self.publish(metrics)
            self._has_published, self._reported = True, ""
        except OutputError as error:
            if not self._has_published:
                raise
            if self._reported != str(error):
                self.progress(f"metrics: {error}")
            self._reported = str(error)


class _Newest(Collector):
    """The metrics of the last `publish`, without those that have no value; `publish` replaces all at once."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._metrics: Sequence[Metric] = ()

    def collect(self) -> Iterable[Metric]:
        return self._metrics

    def publish(self, metrics: Sequence[Metric]) -> None:
        self._metrics = [one for one in metrics if one.samples]


def metrics_text(metrics: Sequence[Metric]) -> str:
    """Return the metrics that have a value, in Prometheus' text format 0.0.4."""
    newest = _Newest()
    newest.publish(metrics)
    return generate_latest(newest.registry).decode()


@contextmanager
def metrics_target(target: str, progress: Callable[[str], None]) -> Iterator[Publish]:
    """Yield the function that publishes metrics at a target.

    Args:
        target: PORT or HOST:PORT to serve metrics on, PORT alone only to this machine; else a local FILE, replaced each time.
        progress: called with a line that has the address of the metrics.

    Raises:
        OutputError: the port is in use, or the file cannot be written.
    """
    if not is_address(target):
        yield _file(target)
        return
    newest = _Newest()
    with serving(target, _at_path(newest.registry), "metrics") as authority:
        progress(f"metrics at http://{authority}{PATH}")
        yield newest.publish


def _file(target: str) -> Publish:
    path = os.path.abspath(target)
    if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path)):
        raise OutputError(f"{target}: expected PORT, HOST:PORT, or a file for metrics in an existing folder")

    def publish(metrics: Sequence[Metric]) -> None:
        try:
            with whole_file(path) as file:
                file.write(metrics_text(metrics).encode())
        except OSError as error:
            raise OutputError(f"{target}: expected a file that can be written, found {error}") from error

    return publish


def _at_path(registry: CollectorRegistry) -> WSGIApplication:
    """The application that serves the metrics of a registry at PATH, and nothing else."""
    metrics = make_wsgi_app(registry)

    def at_path(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == PATH:
            answer: Iterable[bytes] = metrics(environ, start_response)
            return answer
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"metrics are at {PATH}\n".encode()]

    return at_path
