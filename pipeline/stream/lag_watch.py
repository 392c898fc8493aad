"""Consumer lag of the groups of a stream's broker, computed again after each import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client.core import Metric
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.lag.lag_metrics import GROUPS_MAX, TOPICS_MAX, LagMetrics, lag_metrics, left_out_family
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.views import asking
from pipeline.schema import tables as t
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings
from pipeline.stream.stream_run import StreamRun


class LagWatchError(Exception):
    """The consumer lag cannot be computed now."""


@dataclass(slots=True)
class LagWatch:
    """Computes metrics of consumer lag for a stream's broker.

    Attributes:
        spark: the session.
        run: the run of the stream.
        progress: called with a text if the metrics are truncated.
    """

    spark: SparkSession
    run: StreamRun
    progress: Callable[[str], None]
    _lag: LagMetrics | None = None
    _lag_of: Mapping[str, int | None] | None = None

    def look(self) -> bool:
        """Compute the metrics again if an import has changed a table since the last call; gives whether it has.

        Raises:
            LagWatchError: the lake cannot be read, or Spark fails.
        """
        try:
            lake = Lake(self.spark, self.run.lake).require()
            found = {table.name: lake.at.tables.get(table.name) for table in t.IMPORTED}
            if found == self._lag_of:
                return False
            cluster = BrokerSettings.from_sources(stored=self.run.opened(lake).properties()).value("brokerClusterName")
            self._lag, self._lag_of = lag_metrics(asking(lake), {self.run.broker: cluster}), found
        except (LakeError, PySparkException) as error:
            raise LagWatchError(str(error)) from error
        if self._lag.groups_left_out or self._lag.topics_left_out:
            left_out = f"{self._lag.groups_left_out:,} pairs of group and topic, {counted(self._lag.topics_left_out, 'topic')}"
            self.progress(f"the metrics leave out {left_out}: they hold {GROUPS_MAX:,} and {TOPICS_MAX:,}")
        return True

    def families(self) -> list[Metric]:
        """The metrics as of the last `look`; empty before the first one."""
        if self._lag is None:
            return []
        counts = {"groups": self._lag.groups_left_out, "topics": self._lag.topics_left_out}
        return [*self._lag.families, left_out_family(counts, {"run_id": self.run.run_id})]
