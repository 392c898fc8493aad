"""Messages of answers as JSON: entries in any order, over many blocks and rows, give the texts of their records in their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pipeline.replay import message_texts

RECORDS, ANSWERS = 3000, 500
ENTRIES = pa.list_(pa.struct({"queueOffset": pa.int64(), "physicOffset": pa.int64(), "size": pa.int32()}))


def test_each_answer_gets_the_texts_of_its_entries_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_texts, "_ROW_BITS", 14)  # many rows a block
    chance = np.random.default_rng(3)
    offsets = np.sort(chance.choice(np.arange(0, 60 << 20, 100), RECORDS, replace=False))
    sizes = chance.integers(90, 2000, RECORDS).astype(np.int32)
    texts = [f"{{{offset}}}" for offset in offsets]

    def records(chosen: np.ndarray) -> pa.RecordBatch:
        columns = {"block": offsets[chosen] >> 23, "physicOffset": offsets[chosen], "size": sizes[chosen]}
        return pa.RecordBatch.from_pydict(columns | {"text": [texts[number] for number in chosen]})

    # two of three answers have entries in no order, as a queue with entries that were dispatched again may have
    first = chance.integers(0, RECORDS - 40, ANSWERS)
    counts = chance.integers(1, 40, ANSWERS)
    asked = [chance.choice(RECORDS, counts[seq]) if seq % 3 else np.arange(first[seq], first[seq] + counts[seq]) for seq in range(ANSWERS)]

    def answers(seqs: range) -> pa.RecordBatch:
        entries = [[{"queueOffset": 0, "physicOffset": offsets[one], "size": sizes[one]} for one in asked[seq]] for seq in seqs]
        return pa.RecordBatch.from_pydict({"seq": pa.array(seqs, pa.int64()), "entries": pa.array(entries, ENTRIES)})

    stored = chance.permutation(RECORDS)
    rows = [
        *message_texts._texts_by_block(iter([records(stored[:1000]), records(stored[1000:])])),
        *message_texts._entries_by_block(iter([answers(range(200)), answers(range(200, ANSWERS)), answers(range(0))])),
    ]
    in_order = pa.Table.from_batches(rows).sort_by([("block", "ascending"), ("isWanted", "ascending")])
    found: dict[int, list[tuple[int, str]]] = {}
    for batch in message_texts._fragments("lake", iter(in_order.to_batches(max_chunksize=7))):
        for seq, position, fragment in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found.setdefault(seq, []).append((position, fragment))
    assert {seq: ",".join(text for _, text in sorted(parts)) for seq, parts in found.items()} == {
        seq: ",".join(texts[one] for one in entries) for seq, entries in enumerate(asked)
    }
