"""Consumer lag as gauges of rocketmq-exporter, and those that `pullsim lag --metrics` adds: names, labels, sums, missing values."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.commands.engine import Engine
from pipeline.embedded.database import EmbeddedLake
from pipeline.follow.follow_metrics import Followed, FollowReport
from pipeline.lag import lag_metrics as module
from pipeline.lag.group_metrics import all_metrics
from pipeline.lag.lag_metrics import LagMetrics, lag_metrics
from pipeline.lake.asking import AskAll
from pipeline.main import run
from pipeline.serving.metrics import metrics_text
from tests.makers.plain_lakes import plain_lake
from tests.runs.prometheus import Metric, parse, series
from tests.truth.places import PROJECT

MONITORING = PROJECT / "examples" / "monitoring"
END = 1_795_257_353_846
# (broker, topic, queue) -> end of the queue
ENDS = {
    ("a", "shop", 0): 100,
    ("a", "shop", 1): 98,
    ("a", "shop", 2): 7,
    ("a", "pay", 0): 5,
    ("a", "%RETRY%orders", 0): 4,
    ("a", "%DLQ%orders", 0): 4,
    ("b", "shop", 0): 1001,
}
# (broker, group, topic, queue) -> stored offset; nobody has one of the third queue of shop
OFFSETS = {
    ("a", "orders", "shop", 0): 90,
    ("a", "orders", "shop", 1): 100,
    ("a", "other", "pay", 0): 5,
    ("a", "orders", "%RETRY%orders", 0): 1,
    ("a", "dead", "%DLQ%orders", 0): 0,
    ("b", "orders", "shop", 0): 1,
}
# (topic, offset) -> how long this message of broker a had waited when the last one came, ms
WAITED = {("shop", 90): 7, ("%RETRY%orders", 1): 9}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    places = ("brokerName", "consumerGroup", "topic", "queueId")
    return plain_lake(
        tmp_path_factory.mktemp("metrics") / "lake",
        {
            "broker": [
                {"brokerName": "a", "maxStoreTimestamp": END, "minPhyOffset": 0, "properties": [("brokerClusterName", "c1")]},
                {"brokerName": "b", "maxStoreTimestamp": END + 1000, "minPhyOffset": 0},
            ],
            "queue": [
                {"brokerName": broker, "topic": topic, "queueId": queue, "minOffset": 0, "maxOffset": end}
                for (broker, topic, queue), end in ENDS.items()
            ],
            "consumer_offset": [dict(zip(places, key, strict=True), consumerOffset=offset) for key, offset in OFFSETS.items()],
            "consume_queue": [
                {"brokerName": "a", "topic": topic, "queueId": 0, "queueOffset": offset, "size": 1, "storeTimestamp": END - waited}
                for (topic, offset), waited in WAITED.items()
            ],
        },
    )


@pytest.fixture
def ask(lake: Path) -> AskAll:
    return EmbeddedLake(str(lake)).asked


def read(found: LagMetrics) -> dict[str, Metric]:
    return parse(metrics_text(found.families))


def test_the_gauges_have_the_names_and_labels_of_the_exporter(ask: AskAll) -> None:
    found = lag_metrics(ask, {"a": "c1"})
    assert (found.groups_left_out, found.topics_left_out) == (0, 0)
    metrics = read(found)
    assert {metric.type for metric in metrics.values()} == {"gauge"}
    diff = ("group", "topic", "countOfOnlineConsumers", "msgModel")
    group = ("cluster", "broker", "topic", "group")
    topic = ("cluster", "broker", "topic")
    assert {
        name: series(metric, *labels)
        for (name, metric), labels in zip(
            metrics.items(), [diff] * 3 + [group] * 2 + [topic] * 2 + [("cluster", "broker", "group")], strict=True
        )
    } == {
        # 10 - 2, the third queue is not known
        "rocketmq_group_diff": {("orders", "shop", "", "1"): 8, ("other", "pay", "", "1"): 0},
        "rocketmq_group_retrydiff": {("orders", "%RETRY%orders", "", "1"): 3},
        "rocketmq_group_dlqdiff": {("dead", "%DLQ%orders", "", "1"): 4},
        "rocketmq_consumer_offset": {
            ("c1", "a", "shop", "orders"): 190,
            ("c1", "a", "pay", "other"): 5,
            ("c1", "a", "%RETRY%orders", "orders"): 1,
            ("c1", "a", "%DLQ%orders", "dead"): 0,
        },
        "rocketmq_group_get_latency_by_storetime": {
            ("c1", "a", "shop", "orders"): 7,
            ("c1", "a", "pay", "other"): 0,
            ("c1", "a", "%RETRY%orders", "orders"): 9,
        },
        "rocketmq_producer_offset": {("c1", "a", "shop"): 205, ("c1", "a", "pay"): 5},
        "rocketmq_topic_retry_offset": {("c1", "a", "%RETRY%orders"): 4},
        "rocketmq_topic_dlq_offset": {("c1", "a", "orders"): 4},
    }


def test_those_furthest_behind_are_told_where_there_are_too_many(ask: AskAll, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUPS_MAX", 2)
    monkeypatch.setattr(module, "TOPICS_MAX", 1)
    found = lag_metrics(ask, {"a": "c1"})
    assert (found.groups_left_out, found.topics_left_out) == (2, 3)
    metrics = read(found)
    offsets = series(metrics["rocketmq_consumer_offset"], "group", "topic")
    assert set(offsets) == {("orders", "shop"), ("dead", "%DLQ%orders")}
    assert list(metrics) == [
        "rocketmq_group_diff",
        "rocketmq_group_dlqdiff",
        "rocketmq_consumer_offset",
        "rocketmq_group_get_latency_by_storetime",
        "rocketmq_topic_dlq_offset",
    ]


def test_a_lag_without_a_broker_among_its_labels_is_that_of_all_brokers(ask: AskAll) -> None:
    metrics = read(lag_metrics(ask, {"a": "c1", "b": "c2"}))
    assert series(metrics["rocketmq_group_diff"], "group", "topic")["orders", "shop"] == 10 - 2 + 1000
    assert series(metrics["rocketmq_consumer_offset"], "cluster", "broker", "topic", "group")["c2", "b", "shop", "orders"] == 1


def test_a_group_has_its_verdict_and_what_waits(ask: AskAll) -> None:
    metrics = parse(metrics_text(all_metrics(ask, None, dt.datetime.fromtimestamp(5, dt.UTC))))
    broker = ("cluster", "broker", "group")
    assert series(metrics["pullsim_group_status"], *broker, "status") == {
        (cluster, broker, group, "UNKNOWN"): 1
        for cluster, broker, group in (
            *(("c1", "a", "orders"), ("c1", "a", "other"), ("c1", "a", "dead")),
            ("DefaultCluster", "b", "orders"),
        )
    }
    # an offset past the end of the second queue does not hide what waits in the first
    assert series(metrics["pullsim_group_waiting_messages"], *broker)["c1", "a", "orders"] == 10
    assert series(metrics["pullsim_group_retry_waiting_messages"], *broker) == {("c1", "a", "orders"): 3}
    assert series(metrics["pullsim_group_dead_letters"], *broker)["c1", "a", "orders"] == 4
    assert series(metrics["pullsim_group_queues_unknown"], *broker)["c1", "a", "orders"] == 1
    assert series(metrics["pullsim_group_waited_seconds"], *broker)["c1", "a", "orders"] == 0.009
    assert "pullsim_group_clients" not in metrics, "no capture shows a client"
    assert series(metrics["pullsim_store_last_message_time_seconds"], "broker") == {("a",): END / 1000, ("b",): END / 1000 + 1}
    assert [metrics[name].series for name in ("pullsim_lake_version", "pullsim_lag_report_time_seconds")] == [
        {frozenset(): 1},
        {frozenset(): 5},
    ]
    only = parse(metrics_text(all_metrics(ask, "b", dt.datetime.fromtimestamp(5, dt.UTC))))
    assert {labels[1] for labels in series(only["pullsim_group_status"], *broker)} == {"b"}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> AskAll:
    """A lake with ten observations of lag: group big consumes, group small stays one message before the end."""
    groups = {"big": 0, "small": 999, "CID_RMQ_SYS_REVIVE_GROUP": 999, "TOOLS_CONSUMER": 1}
    place = {"brokerName": "a", "topic": "%DLQ%x%DLQ%", "queueId": 0}
    looks = [
        {**place, "consumerGroup": group, "observedAt": END - 60_000 * (9 - look), "consumerOffset": offset, "brokerOffset": 1000}
        | {"minOffset": 0, "lag": 1000 - offset}
        for group, start in groups.items()
        for look in range(10)
        for offset in [start + (look if group == "big" else 0)]
    ]
    rows = {
        "broker": [{"brokerName": "a", "maxStoreTimestamp": END, "minPhyOffset": 0}],
        "queue": [{**place, "minOffset": 0, "maxOffset": 1000}],
        "consumer_offset": [
            {**place, "consumerGroup": one["consumerGroup"], "consumerOffset": one["consumerOffset"]} for one in looks[9::10]
        ],
        "lag_history": looks,
    }
    return EmbeddedLake(str(plain_lake(tmp_path_factory.mktemp("watched") / "lake", rows))).asked


def test_groups_in_trouble_come_first_and_those_of_the_broker_not_at_all(watched: AskAll, monkeypatch: pytest.MonkeyPatch) -> None:
    def statuses() -> tuple[dict[tuple[str, ...], float], float]:
        metrics = parse(metrics_text(all_metrics(watched, None, dt.datetime.fromtimestamp(5, dt.UTC))))
        found = series(metrics["pullsim_group_status"], "group", "status")
        return found, series(metrics["pullsim_lag_left_out"], "of")[("statuses",)]

    # of the dead letter topic's group there are letters, and nothing else is known
    assert statuses() == ({("big", "OK"): 1, ("small", "STOP"): 1, ("x%DLQ%", "UNKNOWN"): 1}, 0)
    monkeypatch.setattr("pipeline.lag.group_metrics.GROUPS_MAX", 1)
    assert statuses() == ({("small", "STOP"): 1}, 2)


def test_a_group_keeps_its_name_whatever_it_is(watched: AskAll) -> None:
    assert series(read(lag_metrics(watched, {"a": "c1"}))["rocketmq_topic_dlq_offset"], "group") == {("x%DLQ%",): 1000}


# labels that Prometheus adds when it reads
OF_PROMETHEUS = {"instance", "job"}
METRIC = re.compile(r"\b((?:pullsim|rocketmq)_\w+)(?:\{([^}]*)\})?")
LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))
    return found


@pytest.fixture
def published(ask: AskAll) -> dict[str, set[str]]:
    """The labels of each metric that lag and a follow publish."""
    moment = dt.datetime.fromtimestamp(5, dt.UTC)
    made = list(all_metrics(ask, None, moment))
    follow = FollowReport(broker="a", store="s", started=moment, now=lambda: moment, publish=made.extend)
    follow.report(Followed(lake_version=1, log_end=1))
    labels: dict[str, set[str]] = {}
    for metric in made:
        labels.setdefault(metric.name, set()).update(*(sample.labels for sample in metric.samples))
    return labels


def labels_of_result(expression: str, published: dict[str, set[str]]) -> set[str]:
    """The labels that the series of an expression may have; each metric and label that the expression names must be published."""
    named = [(name, re.findall(r'(\w+)\s*(?:=~|!=|!~|=)\s*"', chosen)) for name, chosen in METRIC.findall(expression)]
    assert named, expression
    for name, chosen in named:
        assert name in published, expression
        assert set(chosen) <= published[name], expression
    of_all = OF_PROMETHEUS.union(*(published[name] for name, _ in named))
    grouped = re.match(r"(?:sum|max|count) (?:by \(([\w, ]+)\) )?\(|(?:sum|max|count)\(", expression)
    by = set((grouped[1] or "").replace(",", " ").split()) if grouped else of_all
    assert by <= of_all, expression
    return by


def test_the_dashboard_asks_for_metrics_and_labels_that_are_published(published: dict[str, set[str]]) -> None:
    found = dashboard()
    variables = {variable["name"]: variable for variable in found["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(found))) - {"__all"} == variables.keys(), "each is defined, and each is used"
    for variable in variables.values():
        if variable["type"] == "query":
            expression, label = LABEL_VALUES.fullmatch(variable["query"]["query"]).groups()  # type: ignore[union-attr]
            assert label in labels_of_result(expression, published) - OF_PROMETHEUS
    asked = 0
    for panel in found["panels"]:
        for target in panel["targets"]:
            asked += 1
            labels = labels_of_result(target["expr"], published)
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target["expr"]
            columns = labels | {"Time", "Value", "__name__"}
            for one in panel["fieldConfig"]["overrides"]:
                assert one["matcher"]["options"] in columns
            for one in panel.get("transformations", ()):
                assert one["options"]["excludeByName"].keys() <= columns
    assert asked > 10


def test_the_panels_of_the_dashboard_fit_beside_each_other() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23, "Grafana has 24 columns"


def test_the_alerts_ask_for_metrics_and_labels_that_are_published(published: dict[str, set[str]]) -> None:
    _, *alerts = (MONITORING / "alerts.yml").read_text("utf-8").split("- alert: ")
    assert len(alerts) > 8
    for alert in alerts:
        [expression] = re.findall(r"^ +expr: (.*)$", alert, re.MULTILINE)
        labels = OF_PROMETHEUS if expression == 'up{job="pullsim"} == 0' else labels_of_result(expression, published)
        assert set(re.findall(r"\$labels\.(\w+)", alert)) <= labels, alert


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus")
def test_prometheus_takes_the_alerts_and_they_alert() -> None:
    for words in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml"), ("check", "config", "prometheus.yml")):
        done = subprocess.run(["promtool", *words], cwd=MONITORING, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


Pullsim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def pullsim(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lake: Path) -> Pullsim:
    monkeypatch.setattr(Engine, "session", lambda *_, **__: pytest.fail("Spark was started"))

    def call(*words: object) -> tuple[int, str, str]:
        code = run(["lag", "--lake", str(lake), *map(str, words)])
        return code, *capsys.readouterr()

    return call


def test_a_file_of_metrics_is_written_beside_the_table(pullsim: Pullsim, tmp_path: Path) -> None:
    target = tmp_path / "pullsim.prom"
    code, out, err = pullsim("--by", "group", "--metrics", target)
    assert code == 0, err
    assert out.splitlines()[0].startswith("Group ")
    metrics = parse(target.read_text("utf-8"))
    assert {"pullsim_group_status", "rocketmq_group_diff", "pullsim_lag_left_out"} <= set(metrics)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def test_a_watch_serves_metrics_until_it_is_told_to_stop(lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The port answers while the command waits for the lake to change."""
    port, got = free_port(), list[str]()

    def changes(_lake: EmbeddedLake, _stop: threading.Event) -> list[EmbeddedLake]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            got.append(answer.read().decode())
        return []

    monkeypatch.setattr(EmbeddedLake, "changes", changes)
    assert run(["lag", "--lake", str(lake), "--watch", "--metrics", str(port)]) == 0
    assert f"metrics at http://127.0.0.1:{port}/metrics" in capsys.readouterr().err
    assert "pullsim_group_status" in parse(got[0])


def answers(port: int, query: str) -> list[Any]:
    """The series that a Prometheus gives for a query; none if it does not answer yet."""
    address = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
            return found
    except urllib.error.HTTPError as error:
        pytest.fail(f"{query}: {error.read().decode()}")
    except OSError:
        return []


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus: apt-get install prometheus")
def test_a_prometheus_has_an_answer_to_all_that_the_dashboard_asks(lake: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours, its = free_port(), free_port()
    config = (MONITORING / "prometheus.yml").read_text("utf-8").replace("9465", str(ours)).replace("15s", "1s")
    (tmp_path / "prometheus.yml").write_text(config.replace("alerts.yml", str(MONITORING / "alerts.yml")), "utf-8")
    expressions = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    waiting = {re.sub(r"\$(?:cluster|broker|group)\b", ".*", one) for one in expressions}
    words = ("--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{its}")

    def changes(_lake: EmbeddedLake, _stop: threading.Event) -> list[EmbeddedLake]:
        with subprocess.Popen(["prometheus", *words], cwd=tmp_path, stderr=subprocess.DEVNULL) as prometheus:
            try:
                for _ in range(120):
                    waiting.difference_update([one for one in waiting if answers(its, one)])
                    if not waiting:
                        break
                    time.sleep(0.5)
            finally:
                prometheus.terminate()
        return []

    monkeypatch.setattr(EmbeddedLake, "changes", changes)
    assert run(["lag", "--lake", str(lake), "--watch", "--metrics", str(ours)]) == 0
    assert waiting == set()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--metrics", "9464"),
            "--metrics 9464: expected a file, found a port, which answers only while the command runs; give --watch",
        ),
        (("--metrics", "none/here.prom"), "expected PORT, HOST:PORT, or a file for metrics in an existing folder"),
        (("--metrics", "x.prom", "--group", "orders"), "--metrics cannot be combined with --group: the metrics have all groups"),
        (("--metrics", "x.prom", "--record"), "--record cannot be combined with --metrics: it records all of a broker"),
    ],
)
def test_metrics_that_cannot_be_end_with_2(pullsim: Pullsim, tmp_path: Path, monkeypatch: Any, words: tuple[str, ...], told: str) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = pullsim(*words)
    assert (code, out) == (2, "")
    assert told in err
    assert list(tmp_path.iterdir()) == []
