"""Long polling on the driver, for small batches: find which pulls of a batch are due, and which pulls in Spark's state wait at all.

Spark's state does not know what the store has. So it keeps each pull that may wait, even one that was answered at once. A pull that the
state releases is due only if it waited.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.lake.lake import Lake
from pipeline.replay.driver_held_pulls import held_here, when_woken_here, with_woken
from pipeline.replay.held_pulls import may_wait_here
from pipeline.schema.tables import PULL_RESPONSE
from pipeline.settings.settings import BrokerSettings
from pipeline.stream.batch_contents import Contents
from pipeline.stream.batch_rows import has_config
from pipeline.stream.stream_run import StreamRun


@dataclass(slots=True)
class KeptPulls:
    """Whether each pull in Spark's state waits, by requestId; only for pulls that came since Spark last answered a batch."""

    run: StreamRun
    _waits: dict[str, bool] = field(default_factory=dict)

    def due(self, lake: Lake, rows: pa.Table, contents: Contents) -> DuePulls:
        """The rows of a batch that are due.

        Args:
            lake: the lake.
            rows: rows of STREAM_SCHEMA with `released` and `requestId`, without frames and heartbeats.
            contents: contents of these rows.

        Raises:
            NoSessionError: only Spark can answer the pulls or read the tables.
        """
        numbered = rows.set_column(rows.column_names.index("seq"), "seq", pa.array(np.arange(len(rows))))
        refused = pa.array(contents.refused, pa.string())
        bad = numbered.filter(pc.or_(pc.is_valid(numbered["error"]), pc.is_in(numbered["config"], refused)))
        found = DuePulls(with_woken(bad.filter(pc.invert(bad["released"])), {}), {}, [])
        good = numbered.filter(pc.is_null(numbered["error"]))
        for config, (settings, _) in contents.settings.items():
            found = found.with_more(self._due(lake, good.filter(has_config(good, config)), settings))
        return found

    def committed(self, due: DuePulls) -> None:
        """Note that a batch was committed."""
        self._waits |= due.waits
        for one in due.released:
            self._waits.pop(one, None)

    def forget(self) -> None:
        """Forget all pulls, since Spark has answered a batch and may have released some."""
        self._waits.clear()

    def _due(self, lake: Lake, requests: pa.Table, settings: BrokerSettings) -> DuePulls:
        broker, released = self.run.opened(lake), requests["released"]
        held = held_here(broker, requests, settings=settings.pull_settings())
        waits = pc.is_in(requests["seq"], held)
        ids, is_kept = requests["requestId"], pc.and_(pc.invert(released), may_wait_here(requests))
        fresh = dict(zip(ids.filter(is_kept).to_pylist(), waits.filter(is_kept).to_pylist(), strict=True))
        gone = ids.filter(released).to_pylist()
        waited = self._waited(lake, gone, ChainMap(fresh, self._waits))
        due = pc.if_else(released, pc.is_in(ids, pa.array(waited, pa.string())), pc.invert(waits))
        woken = when_woken_here(broker, requests.filter(pc.and_(pc.and_(due, released), waits)), settings=settings)
        return DuePulls(with_woken(requests.filter(due), woken), fresh, gone)

    def _waited(self, lake: Lake, released: Sequence[str], known: Mapping[str, bool]) -> list[str]:
        """The requestIds of the released pulls that waited. A pull that is not in `known` waited if it has no answer."""
        unknown = [one for one in released if one not in known]
        answered = set[str]()
        if unknown:
            wanted = {"runId": [self.run.run_id], "requestId": unknown}
            answered.update(self.run.opened(lake).rows_with(PULL_RESPONSE, wanted, ["requestId"])["requestId"].to_pylist())
        return [one for one in released if known.get(one, one not in answered)]


@dataclass(frozen=True, slots=True)
class DuePulls:
    """The pulls of a batch that are due, and how the batch changes Spark's state.

    Attributes:
        rows: the due rows, with `wokenMillis`, which is NULL for pulls that did not wait.
        waits: for each pull that Spark's state keeps from this batch on, by requestId: whether it waits.
        released: the requestIds of the pulls that Spark's state no longer keeps.
    """

    rows: pa.Table
    waits: Mapping[str, bool]
    released: Sequence[str]

    def with_more(self, other: DuePulls) -> DuePulls:
        """The due pulls of this value and of `other`."""
        return DuePulls(pa.concat_tables([self.rows, other.rows]), {**self.waits, **other.waits}, [*self.released, *other.released])
