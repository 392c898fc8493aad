"""Runs the commands on local files and on a remote file system, to compare what they print and write."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from store_format.remoting.command import SerializeType
from tests.makers.captured_runs import store_with_topics
from tests.makers.recorded_pulls import capture_of, conversation, recorded
from tests.truth.places import PROJECT

LAKE = ("--lake", "{at}/lake", "--broker", "b")
# name -> arguments; {at} is the folder of all files, local or on S3
COMMANDS = {
    "import": ("import", "{at}/store", "--lake", "{at}/lake", "--broker-name", "b"),
    "import another": ("import", "{at}/other", "--lake", "{at}/lake", "--broker-name", "c"),
    "import again": ("import", "{at}/store", "--lake", "{at}/lake", "--broker-name", "b"),
    "replay": ("replay", *LAKE, "--requests", "{at}/trace.jsonl", "--out", "{at}/answers.jsonl", "--filters", "null,TAG", "--compare"),
    "lag": ("lag", "--lake", "{at}/lake", "--format", "csv"),
    "sql": ("sql", "--lake", "{at}/lake", "SELECT brokerName, topic, count(*), sum(storeSize) FROM commit_log GROUP BY ALL ORDER BY ALL"),
    "verify": ("verify", "{at}/store", *LAKE),
    "export": ("export", *LAKE, "{out}/exported"),
    "capture": ("capture", "{at}/traffic.pcap", *LAKE),
    "replay captured": ("replay", *LAKE, "--compare"),
    "report": ("report", *LAKE, "--out", "{at}/report.html"),
    "stream": ("stream", *LAKE, "--requests", "{at}/requests", "--checkpoint", "{at}/checkpoint", "--once"),
    "streamed": ("sql", "--lake", "{at}/lake", "SELECT status, count(*) FROM pull_response GROUP BY ALL ORDER BY ALL", "--engine", "spark"),
    "follow": ("import", "{at}/store", "--lake", "{at}/followed", "--broker-name", "b", "--follow", "--once"),
    "followed": ("sql", "--lake", "{at}/followed", "SELECT topic, count(*) FROM consume_queue GROUP BY ALL ORDER BY ALL"),
}
ANSWERED_WITHOUT_SPARK = {"lag", "sql", "report"}
# verify finds something, because the broker's cleaning deleted files of the store
CODES = {"verify": 1}
# name -> exit code, stdout, stderr
Done = Mapping[str, tuple[int, str, str]]


def all_files(tmp_path_factory: pytest.TempPathFactory, small_store: Path) -> Path:
    """A folder with all that the commands read."""
    folder = tmp_path_factory.mktemp("all")
    store, trace = store_with_topics(tmp_path_factory)
    shutil.copytree(store, folder / "store")
    shutil.copytree(small_store, folder / "other")
    lines = [line for line in recorded(trace) if (line["request"]["filter"] or {"type": "TAG"})["type"] == "TAG"]
    shutil.copy(trace, folder / "trace.jsonl")
    (folder / "traffic.pcap").write_bytes(capture_of(conversation(lines, store, SerializeType.ROCKETMQ)))
    (folder / "requests").mkdir()
    asked = "".join(f"{json.dumps({'request': line['request']})}\n" for line in lines[:50])
    (folder / "requests" / "first.jsonl").write_text(asked, "utf-8")
    return folder


def on_both(local: Path, remote: str, environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Done]:
    """What the commands printed in the folder `local`, and in its copy at the URI `remote`, after a check that both export the same.

    At the URI, Spark also does the work that the driver could do alone; tests/house/test_on_s3.py tests the driver.
    """
    outs = [tmp_path_factory.mktemp(f"out{number}", numbered=False) for number in range(2)]
    places = zip((str(local), remote), outs, ((), ("--master", "local[2]")), strict=True)
    commands = [
        [*(part.format(at=at, out=out) for part in one), *(() if one[0] in ANSWERED_WITHOUT_SPARK else by_spark)]
        for at, out, by_spark in places
        for one in COMMANDS.values()
    ]
    commands.append(["export", "--lake", f"{remote}/lake", "--broker", "b", f"{remote}/exported"])
    call = [sys.executable, "-m", "tests.runs.commands_in_turn", json.dumps(commands)]
    run = subprocess.run(call, cwd=PROJECT, env=dict(environment), stdout=subprocess.PIPE, text=True, timeout=1800, check=True)
    told = [(code, out, err) for code, out, err in json.loads(run.stdout)]
    names = len(COMMANDS)
    assert told[-1][0] == 2, told[-1]
    assert "found a URI" in told[-1][2]
    copies = [{path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()} for out in outs]
    assert copies[0] == copies[1]
    # byte for byte the files of the broker
    assert {path for path in copies[1] if "commitlog" in path.parts}
    for path, content in copies[1].items():
        assert (local / "store" / path.relative_to("exported")).read_bytes() == content
    return dict(zip(COMMANDS, told[:names], strict=True)), dict(zip(COMMANDS, told[names:], strict=False))


def at_once(commands: Sequence[Sequence[Sequence[str]]], environment: Mapping[str, str]) -> list[list[tuple[int, str, str]]]:
    """Run the commands of several drivers, which are processes that run at once; returns exit code, stdout and stderr of each command."""
    calls = [[sys.executable, "-m", "tests.runs.commands_in_turn", json.dumps(one)] for one in commands]
    drivers = [subprocess.Popen(call, cwd=PROJECT, env=dict(environment), stdout=subprocess.PIPE, text=True) for call in calls]
    return [[(code, out, err) for code, out, err in json.loads(driver.communicate(timeout=1800)[0])] for driver in drivers]


def check_whole_or_refused(brokers: Sequence[Sequence[str]], told: Sequence[Sequence[tuple[int, str, str]]], words: str) -> list[str]:
    """Check that at least one import succeeded and the others were refused with `words`; returns the imported brokers, sorted."""
    results = [
        (broker, code, err)
        for one, of_driver in zip(told, brokers, strict=True)
        for broker, (code, _, err) in zip(of_driver, one, strict=True)
    ]
    assert all((code == 2 and words in err) or not code for _, code, err in results), results
    assert not all(code for _, code, _ in results), results
    return sorted(broker for broker, code, _ in results if not code)


def check_printed(name: str, done: tuple[Done, Done], local: Path, remote: str) -> None:
    """Check that a command printed at the URI `remote` what it printed on local files."""
    (code, out, err), (code_there, out_there, err_there) = done[0][name], done[1][name]
    assert (code, code_there) == (CODES.get(name, 0),) * 2, (err, err_there)
    assert without_runs(out_there).replace(remote, "AT").replace("/out1/", "/out0/") == without_runs(out).replace(str(local), "AT")


def without_runs(text: str) -> str:
    """A text without the ids of runs, which are random."""
    words = text.split(" ")
    return " ".join("RUN" if len(word.strip(":\n")) == 32 and "run" in words[max(at - 1, 0)] else word for at, word in enumerate(words))
