"""The rows of a simulation for all tables; each row has the name of its table.

Rows of consumed messages are many. The task writes them to a temporary file first and reads them from there, so it holds only one batch.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.schema import simulation_tables as st
from pipeline.schema.arrow_types import arrow_of
from pipeline.schema.table import Table
from pipeline.settings.settings import camel_case
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX
from udfs.simulation import world as at
from udfs.simulation.group_engine import WrittenRows
from udfs.simulation.group_plan import GroupPlan
from udfs.simulation.lag_sample import BROKER_OFFSET, CONSUMER_OFFSET, LAG, REACHED_OFFSET, WAITED, WAITED_FROM_BEFORE
from udfs.simulation.outcome import Outcome, simulate
from udfs.simulation.transactions import TransactionFigures
from udfs.simulation.world import MS

TABLE_COLUMN = "tableName"
_TYPES = {column.name: column.type for table in st.SIMULATED for column in table.columns}
SCHEMA_DDL = ", ".join([f"{TABLE_COLUMN} STRING", *(f"`{name}` {kind}" for name, kind in _TYPES.items())])
SCHEMA = arrow_of(SCHEMA_DDL)


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """One run to simulate."""

    variant: int
    seed: int
    plan: GroupPlan
    begins: int | None = None


def rows_of(run: SimulationRun) -> Iterator[pa.RecordBatch]:
    """Simulate a run and yield the rows of all tables; the rows of the table of runs come last."""
    plan = run.plan
    retry = RETRY_GROUP_TOPIC_PREFIX + plan.group
    queues = [(queue.brokerName, queue.topic, queue.queueId) for queue in plan.queues]
    queues += [(broker, retry, number) for broker in plan.brokers for number in range(plan.broker.retry_queue_nums)]
    clients: list[str] = [client.client_id for client in sorted(plan.clients, key=lambda one: one.joins)]
    with tempfile.TemporaryFile() as spooled:
        with pa.ipc.new_stream(spooled, SCHEMA) as writer:
            outcome = simulate(plan, lambda told: _spool(writer, run, queues, clients, told))
        spooled.seek(0)
        yield from pa.ipc.open_stream(spooled)
    yield _batch(st.SIMULATED_LAG, run, _lag_columns(plan, outcome, queues))
    yield from _rebalances(run, outcome)
    if outcome.transactions:
        figures = _transaction_figures(run, outcome.transactions)
        yield _batch(st.SIMULATED_TRANSACTIONS, run, {name: [value] for name, value in figures.items()})
    yield _batch(st.SIMULATION_RUN, run, {name: [value] for name, value in _figures(run, outcome).items()})


def _spool(
    writer: pa.ipc.RecordBatchStreamWriter, run: SimulationRun, queues: Sequence[Any], clients: Sequence[str], told: WrittenRows
) -> None:
    if len(told.consumed):
        writer.write_batch(_batch(st.CONSUMPTION, run, _consumed_columns(told, queues, clients)))
    if len(told.dead):
        dead = told.dead
        of_queue = [queues[queue] for queue in dead[:, at.D_QUEUE]]
        columns = {
            "brokerName": [one[0] for one in of_queue],
            "consumerGroup": [run.plan.group] * len(dead),
            "topic": [one[1] for one in of_queue],
            "queueId": [one[2] for one in of_queue],
            "queueOffset": dead[:, at.D_OFFSET],
            "atMillis": dead[:, at.D_TIME] // MS,
            "reconsumeTimes": dead[:, at.D_TRIES],
        }
        writer.write_batch(_batch(st.DEAD_LETTER, run, columns))


def _consumed_columns(told: WrittenRows, queues: Sequence[Any], clients: Sequence[str]) -> dict[str, Any]:
    rows = told.consumed
    brokers, topics, numbers = (np.array(column, object)[rows[:, at.C_QUEUE]] for column in zip(*queues, strict=True))
    return {
        "brokerName": brokers,
        "topic": topics,
        "queueId": numbers.astype(np.int64),
        "queueOffset": rows[:, at.C_OFFSET],
        "firstQueueId": np.array([queue[2] for queue in queues])[rows[:, at.C_FIRST_QUEUE]],
        "firstQueueOffset": rows[:, at.C_FIRST_OFFSET],
        "reconsumeTimes": rows[:, at.C_TRY],
        "clientId": np.array(clients, object)[rows[:, at.C_CLIENT]],
        "pulledMicros": rows[:, at.C_PULLED],
        "startedMicros": rows[:, at.C_STARTED],
        "endedMicros": rows[:, at.C_ENDED],
        "result": np.array(at.RESULTS, object)[rows[:, at.C_RESULT]],
    }


def _lag_columns(plan: GroupPlan, outcome: Outcome, queues: Sequence[Any]) -> dict[str, Any]:
    looks, count, _ = outcome.lag.shape
    lag = outcome.lag.reshape(looks * count, -1)
    committed = lag[:, CONSUMER_OFFSET]
    waited = lag[:, WAITED]
    return {
        "brokerName": [queue[0] for queue in queues] * looks,
        "consumerGroup": [plan.group] * len(lag),
        "topic": [queue[1] for queue in queues] * looks,
        "queueId": [queue[2] for queue in queues] * looks,
        "atMillis": np.repeat(outcome.times // MS, count),
        "brokerOffset": lag[:, BROKER_OFFSET],
        "consumerOffset": pa.array(committed, mask=committed < 0),
        "reachedOffset": lag[:, REACHED_OFFSET],
        "lag": lag[:, LAG],
        "waitedMillis": pa.array(waited // MS, mask=waited == WAITED_FROM_BEFORE),
    }


def _rebalances(run: SimulationRun, outcome: Outcome) -> Iterator[pa.RecordBatch]:
    told = outcome.rebalances
    if told:
        columns = {
            "brokerName": [run.plan.brokers[0]] * len(told),
            "consumerGroup": [run.plan.group] * len(told),
            "topic": [one.topic for one in told],
            "atMillis": [one.time // MS for one in told],
            "clientId": [one.client_id for one in told],
            "clients": [one.clients for one in told],
            "taken": [[f"{queue.brokerName}/{queue.queueId}" for queue in one.taken] for one in told],
            "dropped": [[f"{queue.brokerName}/{queue.queueId}" for queue in one.dropped] for one in told],
        }
        yield _batch(st.REBALANCE_EVENT, run, columns)


def _figures(run: SimulationRun, outcome: Outcome) -> dict[str, Any]:
    caught_up, lag = outcome.caught_up_at, outcome.lag_messages
    return {
        "brokerName": run.plan.brokers[0],
        "consumerGroup": run.plan.group,
        "topic": run.plan.topic,
        "beginsMillis": run.begins,
        "endedMillis": outcome.stopped_at // MS,
        "consumedAll": outcome.consumed_all,
        "caughtUpMillis": None if caught_up is None else caught_up // MS,
        "maxLag": int(lag.max()),
        "lastLag": int(lag[-1]),
        **{"deadLetters" if name == "dead" else camel_case(name): count for name, count in outcome.counts.items()},
        "clients": sum(client.alive for client in outcome.clients),
        "idleClients": outcome.idle_clients,
    }


def _transaction_figures(run: SimulationRun, found: TransactionFigures) -> dict[str, Any]:
    delays = found.commit_delays // MS
    shares = {"commitMillis50": 0.5, "commitMillis99": 0.99, "commitMillisMax": 1.0}
    return {
        "brokerName": run.plan.brokers[0],
        "topic": run.plan.topic,
        **{camel_case(one.name): getattr(found, one.name) for one in fields(found) if one.name != "commit_delays"},
        **{name: _at_share(delays, share) for name, share in shares.items()},
    }


def _at_share(ascending: NDArray[np.int64], share: float) -> int | None:
    """Return the quantile of ascending values at `share`, by nearest rank; None without values."""
    return int(ascending[math.ceil(share * len(ascending)) - 1]) if len(ascending) else None


def _batch(table: Table, run: SimulationRun, columns: dict[str, Any]) -> pa.RecordBatch:
    """Return rows of one table in the form of rows of all tables."""
    rows = len(next(iter(columns.values())))
    given = columns | {TABLE_COLUMN: [table.name] * rows, "variant": [run.variant] * rows, "seed": [run.seed] * rows}
    arrays = []
    for field in SCHEMA:
        values = given.get(field.name, pa.nulls(rows))
        values = pa.array(values) if isinstance(values, np.ndarray) else values
        arrays.append(values.cast(field.type) if isinstance(values, pa.Array) else pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
