"""Metrics: their text, as a strict reader of the format takes it, and where they go."""

from __future__ import annotations

import math
import os
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.files.output_file import OutputError
from pipeline.lag.metrics_target import metrics_target
from pipeline.lag.metrics_text import Family, Sample, metrics_text
from pipeline.main import run
from tests.runs.prometheus import Metric, parse

TEXTS = st.text(st.one_of(st.sampled_from('\\"\n{}=, nä\r\u2028'), st.characters(exclude_categories=["Cs"])))


@given(st.dictionaries(st.sampled_from(["topic", "group", "queueid"]), TEXTS), st.floats() | st.integers(-(2**63), 2**63), TEXTS)
def test_a_reader_gets_what_was_said(labels: dict[str, str], value: float, told: str) -> None:
    [(name, metric)] = parse(metrics_text([Family("a_b_total", told, "counter", (Sample(value, labels),))])).items()
    [(found_labels, found)] = metric.series.items()
    assert (name, metric.help, metric.type, dict(found_labels)) == ("a_b_total", told, "counter", labels)
    assert found == float(value) or (math.isnan(found) and math.isnan(value))


def test_the_text_by_hand() -> None:
    families = [
        Family("one", "A back\\slash,\na line.", "gauge", (Sample(1, {}), Sample(0.5, {"topic": '%RETRY%"a"\\b\n', "group": ""}))),
        Family("none", "Without series.", "gauge", ()),
        Family("two", "", "counter", (Sample(math.inf, {}), Sample(-math.inf, {"a": "b"}))),
    ]
    assert metrics_text(families) == (
        "# HELP one A back\\\\slash,\\na line.\n# TYPE one gauge\none 1\n"
        'one{topic="%RETRY%\\"a\\"\\\\b\\n",group=""} 0.5\n'
        '# HELP two \n# TYPE two counter\ntwo +Inf\ntwo{a="b"} -Inf\n'
    )
    assert parse(metrics_text(families))["one"] == Metric(
        "A back\\slash,\na line.", "gauge", {frozenset(): 1, frozenset({("topic", '%RETRY%"a"\\b\n'), ("group", "")}): 0.5}
    )


@pytest.mark.parametrize(
    "text",
    [
        "# HELP a x\n# TYPE a gauge\na 1",
        "# HELP a x\n# TYPE a gauge\n",
        "# HELP a x\na 1\n",
        "# TYPE a gauge\na 1\n",
        "# HELP a x\n# TYPE a gauge\na 1\na 1\n",
        '# HELP a x\n# TYPE a gauge\na{b="c\\d"} 1\n',
        '# HELP a x\n# TYPE a gauge\na{b="c"d"} 1\n',
        '# HELP a x\n# TYPE a gauge\na{b="c",b="d"} 1\n',
        "# HELP a x\n# TYPE a gauge\na 1\n# HELP a x\n# TYPE a gauge\na 1\n",
        "# HELP a x\n# TYPE a gauge\na inf\n",
        "# HELP a \\x\n# TYPE a gauge\na 1\n",
        "# HELP a x\n# TYPE a gauge\na 1\n\n",
    ],
)
def test_the_reader_is_strict(text: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        parse(text)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with metrics_target("pullsim.prom", pytest.fail) as publish:
        assert os.listdir(tmp_path) == []
        publish("one\n")
        first = os.open(tmp_path / "pullsim.prom", os.O_RDONLY)
        publish("another\n")
    assert (os.read(first, 100), os.listdir(tmp_path)) == (b"one\n", ["pullsim.prom"])
    os.close(first)
    assert (tmp_path / "pullsim.prom").read_text() == "another\n"
    assert (tmp_path / "pullsim.prom").stat().st_mode & 0o777 == 0o644, "a collector runs as another user"


def get(url: str) -> tuple[int, str, str]:
    """Status, type and text of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 (a server of our own)
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.mark.parametrize("host", ["", "127.0.0.1:", "localhost:", "[::1]:"])
def test_a_port_serves_the_newest_text_on_this_machine(host: str) -> None:
    if host.startswith("[") and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    told: list[str] = []
    try:
        with metrics_target(f"{host}0", told.append) as publish:
            url = told[0].removeprefix("metrics at ")
            assert url.startswith(f"http://{host or '127.0.0.1:'}")
            assert get(url) == (200, "text/plain; version=0.0.4; charset=utf-8", "")
            publish("one\n")
            publish('two{a="ä"} 1\n')
            assert get(url)[::2] == (200, 'two{a="ä"} 1\n')
            assert get(f"{url}?x=y")[0] == 200
            assert get(url.removesuffix("/metrics"))[::2] == (404, "metrics are at /metrics\n")
    except OutputError as error:
        if not host.startswith("["):
            raise
        pytest.skip(f"this machine has no IPv6: {error}")
    with pytest.raises(urllib.error.URLError):
        get(url)


def test_a_target_that_cannot_be_is_refused_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        targets = {
            str(port): f"error: {port}: expected a port that is free",
            "70000": "error: 70000: expected a port that is free",
            str(tmp_path): f"error: {tmp_path}: expected PORT, HOST:PORT, or a file",
            f"{tmp_path}/none/m.prom": f"error: {tmp_path}/none/m.prom: expected PORT, HOST:PORT, or a file",
        }
        for target, said in targets.items():
            assert run(["stream", "--lake", "l", "--requests", "r", "--checkpoint", "c", "--metrics", target]) == 2
            err = capsys.readouterr().err
            assert said in err
            assert "starting Spark" not in err
