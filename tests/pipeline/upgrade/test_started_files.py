"""The start of the golden stores by each version, compared with the recoveries of the real brokers; and minOffset by search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.settings.settings import BrokerSettings, load_catalogue
from pipeline.upgrade.min_offsets import min_offset_of
from pipeline.upgrade.started_files import StartedFiles, compare_starts
from store_format.broker_version import BrokerVersion
from tests.models.without_spark import tables_of
from tests.runs.sampling import sampled
from tests.truth import golden, golden5
from tests.truth.golden5 import needs_golden5

OWN_FILES = ("rocksdbstore/", "compaction/", "abort", "lock")
# known to be recovered otherwise (golden5/README.md): always among the sample
OTHERWISE = ("torn-bad-magic-old-cq-missing", "torn-cq-behind", "torn-hole-cq-missing", "torn-last-file-length-0", "torn-zero-middle")
RECOVERIES = golden.names("recover", "*.json")
QUEUE_COLUMNS = ("topic", "queueId", "segment", "fileFirstOffset", "firstQueueOffset", "entryCount", "entries")


def of_version(config: dict[str, Any], version: str) -> BrokerSettings:
    """The settings of a recording, with the rules of a version."""
    known = load_catalogue(BrokerVersion(version))
    names = known.keys() | {"bloom"}
    return BrokerSettings.from_sources(header={name: value for name, value in config.items() if name in names} | {"rulesVersion": version})


def recorded_fields(recorded: dict[str, Any]) -> dict[str, Any]:
    """The fields of StartedFiles in a recorded recovery; only the results of load and start if the broker does not start."""
    ends = {"load": recorded["load"], "start": recorded.get("start")}
    if ends["start"] != "ok":
        return ends
    state = recorded["afterStart"]
    before, after = ({file["path"] for file in recorded[when]["files"]} for when in ("before", "afterShutdown"))
    return ends | {
        "log_min": state["minPhyOffset"],
        "log_max": state["maxPhyOffset"],
        "dispatched": recorded["redispatchedInLoad"] + recorded["redispatchedInStart"],
        "deleted": sorted(path for path in before - after if not path.startswith(OWN_FILES)),
        "queues": {(one["topic"], one["queueId"]): (one["minOffsetInQueue"], one["maxOffsetInQueue"]) for one in state["queues"]},
    }


def found_fields(found: StartedFiles) -> dict[str, Any]:
    """The same fields as the comparison finds them."""
    ends = {"load": found.load, "start": found.start}
    if found.start != "ok":
        return ends
    own = {name: getattr(found, name) for name in ("log_min", "log_max", "dispatched", "queues")}
    return ends | own | {"deleted": sorted(path for path in found.deleted if not path.startswith(OWN_FILES))}


@needs_golden5
@pytest.mark.parametrize("name", sorted({*sampled(RECOVERIES, 12), *(OTHERWISE if RECOVERIES else ())}))
def test_each_version_leaves_a_store_as_the_real_one_does(name: str, stores: Path) -> None:
    recorded = {"4.9.3": golden.recovery(name), "5.5.0": golden5.recovery("on-4.9.3-stores", name)}
    settings = [of_version(one["config"], version) for version, one in recorded.items()]
    found = compare_starts(str(stores / recorded["4.9.3"]["store"]), *settings)
    for (_, side), one in zip(found.sides(), recorded.values(), strict=True):
        assert found_fields(side) == recorded_fields(one)
        assert "abort" not in side.deleted, "a start makes it, and the shutdown removes it"
    queues = [recorded_fields(one).get("queues", {}) for one in recorded.values()]
    if all(queues):
        assert found.queues_differ == sum(queues[0].get(key) != queues[1].get(key) for key in queues[0].keys() | queues[1].keys())


@needs_golden5
@pytest.mark.parametrize("name", ["cleaned", "preblank0"])
def test_min_offsets_by_search_are_found_from_the_tables(name: str, stores: Path) -> None:
    recorded = {"4.9.3": golden.recovery(name), "5.5.0": golden5.recovery("on-4.9.3-stores", name)}
    bounds = {version: recorded_fields(one)["queues"] for version, one in recorded.items()}
    tables = tables_of(stores / name, [])
    different = 0
    for queue, (least, _) in bounds["5.5.0"].items():
        rows = [row for key, row in sorted(tables.stored_segments.items()) if key[:2] == queue]
        if not rows:
            continue
        ends = [row for row in rows if row["fileFirstOffset"] == rows[0]["fileFirstOffset"] or row is rows[-1]]
        segments = pa.Table.from_pylist([{column: row[column] for column in QUEUE_COLUMNS} for row in ends])
        for by_search, expected in ((True, least), (False, bounds["4.9.3"][queue][0])):
            (found,) = min_offset_of(tables.store.log_start, by_search, segments).to_pylist()
            assert found == {"topic": queue[0], "queueId": queue[1], "otherMin": expected}
        different += least != bounds["4.9.3"][queue][0]
    assert different > 0
