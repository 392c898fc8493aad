"""What the checksum file of a version of a Delta table says of its readers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.delta.delta_log import reader_features

# as Delta's protocol defines them: version 2 has one feature, which has no name in it, and 3 names all
PROTOCOLS = {
    "Parquet alone": ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["clustering", "domainMetadata"]}, set()),
    "mapped columns": ({"minReaderVersion": 2, "minWriterVersion": 5}, {"columnMapping"}),
    "named features": (
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]},
        {"deletionVectors"},
    ),
    "features as a text": ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": "deletionVectors"}, None),
    "features that are not named": ({"minReaderVersion": 3, "minWriterVersion": 7}, None),
    "no version": ({}, None),
    "no protocol": (None, None),
}


def written(folder: Path, text: str) -> str:
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{7:020d}.crc").write_text(text)
    return str(folder)


@pytest.mark.parametrize("case", PROTOCOLS)
def test_what_readers_have_to_know_of(tmp_path: Path, case: str) -> None:
    protocol, features = PROTOCOLS[case]
    table = written(tmp_path, json.dumps({"numFiles": 1, "protocol": protocol}))
    assert reader_features(table, 7) == features
    assert reader_features(table, 8) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 100_000, '{"protocol": 3}', "\0\xff"])
def test_a_checksum_file_that_says_nothing(tmp_path: Path, text: str) -> None:
    assert reader_features(written(tmp_path, text), 7) is None
