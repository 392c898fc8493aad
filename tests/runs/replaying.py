"""Imports and replays for tests, and a comparison of answers with recorded answers that is independent of --compare."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.runs.importing import imported
from tests.runs.sampling import ALL

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

    from pipeline.lake.lake import Lake
    from pipeline.replay.answered_requests import Comparison
    from pipeline.replay.replay_run import Replayed
    from pipeline.schema.tables import Layout

Line = dict[str, Any]
BROKER = "broker-a"
MESSAGE_FIELDS = ("startOffset", "storeSize", "rawCrc32")
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


def import_into(
    spark: SparkSession | None,
    folder: Path,
    store: Path,
    *,
    layout: Layout | None = None,
    options: Sequence[str] = (),
    by_spark: bool | None = None,
) -> Lake:
    """Import a store into a lake in `folder`; returns the lake. `by_spark` as `imported` takes it."""
    from pipeline.lake.lake import Lake
    from pipeline.settings.settings import BrokerSettings

    settings = BrokerSettings.from_sources(options=options)
    imported(spark, folder, store, broker=BROKER, layout=layout, settings=settings, run_id="import", noon=NOON, by_spark=by_spark)
    return Lake(spark, str(folder))


DEMO_TRACE = "cleaned-default.jsonl"
_FOLDERS: dict[str, Path] = {}


def demo_data(factory: pytest.TempPathFactory) -> Path:
    """Folder of the stores and the trace that come with the package, unpacked once a run of the tests."""
    from pipeline.commands.demo import unpack_demo_data

    if "demo" not in _FOLDERS:
        _FOLDERS["demo"] = factory.mktemp("demo")
        unpack_demo_data(_FOLDERS["demo"])
    return _FOLDERS["demo"]


_LAKES: dict[tuple[Path, Layout | None, bool | None], Lake] = {}


def lake_of(
    spark: SparkSession,
    store: Path,
    factory: pytest.TempPathFactory,
    *,
    layout: Layout | None = None,
    by_spark: bool | None = None,
    **options: Any,
) -> Lake:
    """A lake that holds the store, imported once a test run, for tests that only read."""
    if (key := (store, layout, by_spark)) not in _LAKES:
        _LAKES[key] = import_into(spark, factory.mktemp(f"lake-{store.name}"), store, layout=layout, by_spark=by_spark, **options)
    return _LAKES[key]


def demo_lake(spark: SparkSession, factory: pytest.TempPathFactory, folder: Path) -> Path:
    """A lake in `folder` that holds the store of the demo's trace, for tests that write."""
    return shutil.copytree(lake_of(spark, demo_data(factory) / "cleaned", factory).root, folder / "lake")


def run(
    lake: Lake, requests: Path, *, settings: Sequence[str] = (), run_id: str = "replay", by_spark: bool | None = None, **options: Any
) -> Replayed[Comparison]:
    """`pullsim replay`, with the options of ReplayOptions, and `settings` as --set gives them.

    Spark answers with `by_spark`; without it, the driver answers what it can. None is False in `./run test` and True in `./run long`.
    """
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.replay.replay_job import run_replay
    from pipeline.replay.replay_run import ReplayOptions
    from pipeline.replay.small_replay import answered_here

    given = ReplayOptions(**options)

    def replayed(opened: OpenedBroker) -> Replayed[Comparison]:
        return run_replay(
            opened,
            str(requests),
            options=given,
            settings_of=lambda file: file.settings(options=settings),
            run_id=run_id,
            now=lambda: NOON,
            progress=lambda _: None,
        )

    done = None
    if not (ALL if by_spark is None else by_spark):
        done = answered_here(replayed, lake.root, BROKER, str(requests), options=given, reads="lines", tell=lambda _: None)
        lake.at = lake.newest()
    return done or replayed(OpenedBroker(lake, BROKER))


def answers_of(lake: Lake, requests: Path | Iterable[Line], folder: Path, **options: Any) -> list[Line]:
    """The lines of the file that a replay of the requests writes."""
    if not isinstance(requests, Path):
        requests = write_lines(folder / "requests.jsonl", requests)
    out = folder / "answers.jsonl"
    run(lake, requests, out=str(out), **options)
    return read_lines(out)


def write_lines(path: Path, lines: Iterable[Line]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[Line]:
    """The lines of a file that hold requests: all but the header of a trace."""
    return [line for line in all_lines(path) if "request" in line]


def all_lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def with_raw_messages(response: Any) -> Any:
    """A recorded answer whose messages have only the fields that need no decoding."""
    if not isinstance(response, dict) or "messages" not in response:
        return as_compared(response)
    return response | {"messages": [{name: message[name] for name in MESSAGE_FIELDS} for message in response["messages"]]}


def as_compared(response: Any) -> Any:
    """An answer in the form that is compared: an exception is only its class."""
    return {"exception": response["exception"]} if isinstance(response, dict) and "exception" in response else response


def differences(recorded: Sequence[Line], ours: Sequence[Line]) -> list[str]:
    """The requests whose answer differs from the recorded one, each with both answers."""
    assert [line["request"] for line in ours] == [line["request"] for line in recorded]
    pairs = zip(recorded, ours, strict=True)
    return [
        f"{line['request']}\n recorded {line['response']}\n ours {our['response']}"
        for line, our in pairs
        if as_compared(our["response"]) != as_compared(line["response"])
    ]
