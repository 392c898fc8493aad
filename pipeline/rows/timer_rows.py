"""Reads timerlog and timerwheel of a broker 5.x into rows of their tables; tasks read the files.

Broker source (5.5.0): TimerLog, TimerWheel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.files.store_files import StoreFiles
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.table import Table
from pipeline.schema.timer_tables import TIMER_LOG, TIMER_SLOT
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.task_rows import TaskRows
from pipeline.tasks.work import Batches, Tasks, items_of
from store_format.errors import CorruptStoreError
from store_format.files.files import Entry
from store_format.files.mapped_files import is_mapped_file_name
from store_format.timer import timer_files as tf

# units and slots that a task reads at once
_UNITS_A_PIECE = 1 << 18
_SLOTS_A_PIECE = 1 << 18
_LONG_END = 2**63
TIMER_TABLES = (TIMER_LOG, TIMER_SLOT)


def timer_rows(tasks: Tasks, store: StoreFiles, broker: str, settings: BrokerSettings) -> tuple[TaskRows, ...]:
    """The rows of timer_log and timer_slot; nothing for a store that has neither file. A task reads a file.

    Raises:
        CorruptStoreError: as for `log_files`.
    """
    logs = log_files(store)
    files = [*logs, *(entry for entry in store.folder() if entry.name == tf.TIMER_WHEEL and not entry.is_folder)]
    if not files:
        return ()
    given = settings.explicit("timerPrecisionMs")

    def read(work: Batches, wanted: frozenset[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for entry in items_of(work, files):
            if entry.name == tf.TIMER_WHEEL and TIMER_SLOT.name in wanted:
                yield from ((TIMER_SLOT.name, rows) for rows in slot_rows(store, broker, entry, logs, given))
            elif entry.name != tf.TIMER_WHEEL and TIMER_LOG.name in wanted:
                yield from ((TIMER_LOG.name, rows) for rows in _units(store, broker, entry))

    return (TaskRows(work=tasks.of_items(files), tables=TIMER_TABLES, read=read),)


def log_files(store: StoreFiles) -> list[Entry]:
    """The files of timerlog, which are named by the 20 digits of an offset; other files are left out.

    Raises:
        CorruptStoreError: a file's offsets do not fit a Java long.
    """
    files = [entry for entry in store.folder(tf.TIMER_LOG) if is_mapped_file_name(entry.name) and not entry.is_folder]
    for entry in files:
        if int(entry.name) + entry.length >= _LONG_END:
            raise CorruptStoreError(
                store.path_of(tf.TIMER_LOG, entry.name), "a file named by its first offset, less than 2**63", entry.name
            )
    return files


def _units(store: StoreFiles, broker: str, entry: Entry) -> Iterator[pa.RecordBatch]:
    first, length = int(entry.name), tf.UNIT.itemsize * _UNITS_A_PIECE
    for start in range(0, entry.length, length):
        units = tf.units_of(store.part(start, min(start + length, entry.length), tf.TIMER_LOG, entry.name))
        columns = {
            "position": first + start + np.arange(len(units)) * tf.UNIT.itemsize,
            "slotTimeMs": units["writeTimeMs"].astype(np.int64) + units["delayedTime"],
            **{name: units[name] for name in ("prevPos", "magic", "writeTimeMs", "physicOffset", "size", "topicHashCode")},
        }
        yield _batch(TIMER_LOG, broker, columns)
        if len(units) < _UNITS_A_PIECE:
            return


def slot_rows(store: StoreFiles, broker: str, wheel: Entry, logs: Sequence[Entry], given: int | None) -> Iterator[pa.RecordBatch]:
    """The rows of timer_slot.

    Args:
        store: the store.
        broker: value of brokerName.
        wheel: the file timerwheel.
        logs: the files of timerlog.
        given: timerPrecisionMs of the settings, ms; if None, the first slot that has a unit in timerlog determines the precision.
    """
    precision = _precision(store, wheel, logs) if given is None else tf.precision_of(given)
    for slots in _slots(store, wheel):
        columns = {"timeMs": slots["time"] * precision, **{name: slots[name] for name in ("firstPos", "lastPos", "num", "magic")}}
        yield _batch(TIMER_SLOT, broker, columns)


def _slots(store: StoreFiles, wheel: Entry) -> Iterator[NDArray[np.void]]:
    length = tf.SLOT.itemsize * _SLOTS_A_PIECE
    for start in range(0, wheel.length, length):
        yield tf.slots_of(store.part(start, min(start + length, wheel.length), tf.TIMER_WHEEL))


def _precision(store: StoreFiles, wheel: Entry, logs: Sequence[Entry]) -> int:
    for slots, log in product(_slots(store, wheel), logs):
        places = slots["firstPos"] - int(log.name)
        inside = np.flatnonzero((places >= 0) & (places <= log.length - tf.UNIT.itemsize))[:1]
        for place, slot in zip(places[inside].tolist(), slots[inside], strict=True):
            units = tf.units_of(store.part(place, place + tf.UNIT.itemsize, tf.TIMER_LOG, log.name))
            if len(units) and (found := tf.precision_between(slot, units[0])) is not None:
                return found
    return tf.DEFAULT_PRECISION


def _batch(table: Table, broker: str, columns: dict[str, NDArray[Any]]) -> pa.RecordBatch:
    schema = arrow_schema(table)
    arrays = {name: pa.array(values.astype(values.dtype.newbyteorder("="))) for name, values in columns.items()}
    arrays["brokerName"] = pa.repeat(broker, len(next(iter(arrays.values()))))
    return pa.RecordBatch.from_pydict({name: arrays[name].cast(schema.field(name).type) for name in schema.names}, schema=schema)
