"""Metrics for Prometheus: make them, write them as text, and publish them in a file or on an HTTP port."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from pipeline.files.output_file import OutputError
from pipeline.files.whole_file import whole_file

PATH = "/metrics"
_LOCALHOST = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]+):)?(?P<port>[0-9]{1,5})")
_CLIENT_SECONDS = 10

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
    address = _ADDRESS.fullmatch(target)
    if address is None:
        yield _file(target)
        return
    host, newest = address["host"] or _LOCALHOST, _Newest()
    with _server(target, host.strip("[]"), int(address["port"]), newest.registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        progress(f"metrics at http://{host}:{server.server_port}{PATH}")
        try:
            yield newest.publish
        finally:
            server.shutdown()


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


class _Server(ThreadingWSGIServer):
    """Answers requests for metrics."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that disconnects, or sends nothing for _CLIENT_SECONDS, is no fault of the stream."""


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """Reads a request for metrics."""

    timeout = _CLIENT_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the server's name)
        """Print nothing: Prometheus sends a request every few seconds."""


def _server(target: str, host: str, port: int, registry: CollectorRegistry) -> _Server:
    metrics = make_wsgi_app(registry)

    def at_path(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == PATH:
            answer: Iterable[bytes] = metrics(environ, start_response)
            return answer
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"metrics are at {PATH}\n".encode()]

    try:
        return make_server(host, port, at_path, _ServerV6 if ":" in host else _Server, _Handler)
    except (OSError, OverflowError) as error:
        raise OutputError(f"{target}: expected a port that is free, to serve metrics from, found {error}") from error
