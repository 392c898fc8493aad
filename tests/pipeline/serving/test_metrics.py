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
from pipeline.main import run
from pipeline.serving.metrics import LastingPublish, metric, metrics_target, metrics_text
from tests.runs.prometheus import Metric, parse

TEXTS = st.text(st.one_of(st.sampled_from('\\"\n{}=, nä\r\u2028'), st.characters(exclude_categories=["Cs"])))


ONE, ONE_TEXT = metric("gauge", "one", "O.", [({}, 1)]), "# HELP one O.\n# TYPE one gauge\none 1.0\n"
ANOTHER, ANOTHER_TEXT = metric("gauge", "two", "T.", [({"a": "ä"}, 1)]), '# HELP two T.\n# TYPE two gauge\ntwo{a="ä"} 1.0\n'


@given(st.dictionaries(st.sampled_from(["topic", "group", "queueid"]), TEXTS), st.floats() | st.integers(-(2**63), 2**63), TEXTS)
def test_a_reader_gets_what_was_said(labels: dict[str, str], value: float, told: str) -> None:
    [(name, read)] = parse(metrics_text([metric("counter", "a_b_total", told, [(labels, value)])])).items()
    [(found_labels, found)] = read.series.items()
    assert (name, read.help, read.type, dict(found_labels)) == ("a_b_total", told, "counter", labels)
    assert found == float(value) or (math.isnan(found) and math.isnan(value))


def test_the_text_by_hand() -> None:
    labels = {"topic": '%RETRY%"a"\\b\n', "group": ""}
    metrics = [
        metric("gauge", "one", "A back\\slash,\na line.", [({"topic": "", "group": "g"}, 1), (labels, 0.5)]),
        metric("gauge", "none", "Without series.", ()),
        metric("counter", "two_total", "", [({"a": "c"}, math.inf), ({"a": "b"}, -math.inf)]),
        metric("gauge", "three", "Without labels.", [({}, 1.5e300)]),
    ]
    assert metrics_text(metrics) == (
        '# HELP one A back\\\\slash,\\na line.\n# TYPE one gauge\none{group="g",topic=""} 1.0\n'
        'one{group="",topic="%RETRY%\\"a\\"\\\\b\\n"} 0.5\n'
        '# HELP two_total \n# TYPE two_total counter\ntwo_total{a="c"} +Inf\ntwo_total{a="b"} -Inf\n'
        "# HELP three Without labels.\n# TYPE three gauge\nthree 1.5e+300\n"
    )
    one = {frozenset({("topic", ""), ("group", "g")}): 1, frozenset(labels.items()): 0.5}
    assert parse(metrics_text(metrics))["one"] == Metric("A back\\slash,\na line.", "gauge", one)


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
        publish([ONE])
        first = os.open(tmp_path / "pullsim.prom", os.O_RDONLY)
        publish([ANOTHER])
    assert (os.read(first, 100), os.listdir(tmp_path)) == (ONE_TEXT.encode(), ["pullsim.prom"])
    os.close(first)
    assert (tmp_path / "pullsim.prom").read_text() == ANOTHER_TEXT
    assert (tmp_path / "pullsim.prom").stat().st_mode & 0o777 == 0o644, "a collector runs as another user"


def test_an_error_of_the_first_time_ends_the_command_and_a_later_one_is_said_once() -> None:
    said: list[str] = []
    errors: list[str] = ["full"]

    def publish(_metrics: object) -> None:
        if errors[-1]:
            raise OutputError(errors[-1])

    lasting = LastingPublish(publish, said.append)
    with pytest.raises(OutputError, match="full"):
        lasting([ONE])
    for error in ("", "full", "full", "gone", "", "gone"):
        errors.append(error)
        lasting([ONE])
    assert said == ["metrics: full", "metrics: gone", "metrics: gone"]


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
            publish([ONE])
            publish([ANOTHER])
            assert get(url)[::2] == (200, ANOTHER_TEXT)
            assert get(f"{url}?x=y")[0] == 200
            assert get(url.removesuffix("/metrics"))[::2] == (404, "metrics are at /metrics\n")
    except OutputError as error:
        if not host.startswith("["):
            raise
        pytest.skip(f"this machine has no IPv6: {error}")
    with pytest.raises(urllib.error.URLError):
        get(url)


@pytest.mark.parametrize("words", ["stream --lake l --requests r --checkpoint c", "import . --lake l --follow"])
def test_a_target_that_cannot_be_is_refused_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        targets = {
            str(port): f"error: {port}: expected a port that is free",
            "70000": "error: 70000: expected a port that is free",
            str(tmp_path): f"error: {tmp_path}: expected PORT, HOST:PORT, or a file",
            f"{tmp_path}/none/m.prom": f"error: {tmp_path}/none/m.prom: expected PORT, HOST:PORT, or a file",
        }
        for target, said in targets.items():
            assert run([*words.split(), "--metrics", target]) == 2
            err = capsys.readouterr().err
            assert said in err
            assert "starting Spark" not in err
