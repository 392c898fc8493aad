"""The peer of a replay: the kernel over numpy arrays in one process, with all entries in memory. It is the limit of one core."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.figures import REPEATS, median_seconds
from benchmarks.made.pulls import MAX_MSG_NUMS, Given, PulledStore, Pulls
from benchmarks.made.synthetic_store import TOPIC_PREFIX
from pipeline.replay.kernel_batches import Answering
from pipeline.settings.settings import BrokerSettings
from store_format.files.mapped_files import offset_to_file_name
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.queue.consume_queue import units_of
from udfs.filters.tags import tags_code
from udfs.pull import get_message as gm


class KernelAnswers(NamedTuple):
    """How fast the kernel answers, and what it gives."""

    pulls_a_second: float
    given: Given


class _Part(NamedTuple):
    """Pulls that start in one queue file, and its entries."""

    requests: np.ndarray
    block: gm.Block


def kernel_answers(pulled: PulledStore, pulls: Pulls, sample: np.ndarray, repeats: int = REPEATS) -> KernelAnswers:
    """Have the kernel answer rows of SAMPLED; only answering counts, not what brings pulls and entries together."""
    answering = _answering(pulled)
    parts = [part for queue in range(pulled.shape.all_queues) for part in _parts(pulled, pulls, sample[sample["queue"] == queue], queue)]
    codes = np.array([tags_code(pulls.expression or "")], np.int32)
    filters = gm.TagCodes(np.array([0, len(codes)]), codes)
    found = np.zeros(gm.ANSWER_COLUMNS, np.int64)

    def run() -> None:
        found[:] = 0
        for part in parts:
            answers = gm.get_message(part.requests, answering.caps, part.block, filters, answering.log)
            found[:] += answers.columns.sum(axis=0)

    run()  # what is compiled is compiled
    seconds = median_seconds(run, repeats)
    given = Given(messages=int(found[gm.COUNT]), bytes=int(found[gm.BYTES]), next_offsets=int(found[gm.NEXT]))
    return KernelAnswers(len(sample) / seconds, given)


def _answering(pulled: PulledStore) -> Answering:
    shape, settings = pulled.shape, BrokerSettings.from_sources().pull_settings()
    last = int(shape.physic_offsets(np.array([shape.messages - 1]))[0]) + shape.record.itemsize
    starts = np.arange(0, last, shape.log_file_bytes)
    wrote = np.full(len(starts), shape.log_file_bytes)
    wrote[-1] = last - starts[-1]
    return Answering.of(settings, shape.queue_file_entries, gm.CommitLogFiles(starts, wrote, shape.log_file_bytes), with_entries=False)


def _parts(pulled: PulledStore, pulls: Pulls, asked: np.ndarray, queue: int) -> list[_Part]:
    """The pulls of one queue, file by file."""
    shape = pulled.shape
    folder = pulled.store / "consumequeue" / f"{TOPIC_PREFIX}{queue // shape.queues:02d}" / str(queue % shape.queues)
    entries = len(range(queue, shape.messages, shape.all_queues))
    requests = np.zeros((len(asked), gm.REQUEST_COLUMNS), np.int64)
    requests[:, gm.OFFSET], requests[:, gm.MAX_MSG_NUMS] = asked["offset"], MAX_MSG_NUMS
    stored = shape.stored_by(asked["timestamp"].astype(np.int64)) if pulls.at == "request-time" else np.full(len(asked), shape.messages)
    requests[:, gm.MAX_OFFSET] = np.maximum(stored - queue + shape.all_queues - 1, 0) // shape.all_queues
    requests[:, gm.LOG_END] = np.where(stored > 0, shape.physic_offsets(stored - 1) + shape.record.itemsize, 0)
    requests[:, gm.FILTER] = gm.NO_FILTER if pulls.filter_type is None else 0
    parts = []
    for first in range(0, entries, shape.queue_file_entries):
        name = offset_to_file_name(first * CQ_STORE_UNIT_SIZE)
        units = units_of(np.fromfile(folder / name, np.uint8))[: entries - first]
        columns = units["physicOffset"].astype(np.int64), units["size"].astype(np.int32), units["tagsCode"].astype(np.int64)
        here = (asked["offset"] >= first) & (asked["offset"] < first + shape.queue_file_entries)
        if here.any():
            parts.append(_Part(np.ascontiguousarray(requests[here]), gm.Block(first, *columns)))
    return parts
