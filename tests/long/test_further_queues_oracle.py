"""Lets each version of the real broker recover stores of light queues with odd messages and no consume queue, and compares the stores.

A message without properties, names with a slash, and messages of retry, dead letter and system topics: versions differ at these.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.settings.settings import BrokerSettings
from pipeline.store.recover import run_recover
from store_format.log.commit_log import walk
from store_format.record.message import Message, body_crc32, decode, encode
from tests.truth.golden5 import without_own_files
from tests.truth.oracle import generate, needs_oracle
from tests.truth.recovering import RecoveringBroker

pytestmark = needs_oracle()
MESSAGES_MAX = 10_000
PREFIXES = {"in a retry topic": b"%RETRY%", "a dead letter": b"%DLQ%", "in a system topic": b"rmq_sys_"}
KINDS = ("unchanged", "without properties", "a slash", *PREFIXES)
LIGHT, WITH_SLASH = b"%LMQ%device_1", b"%LMQ%dev/ce_1"


def changed(message: Message, number: int, kind: str) -> Message:
    """A message as long as before; every second one with further queues, or number 40, is of a kind."""
    properties = message.properties
    if kind == "without properties" and number == 40:
        body = message.body + b"x" * len(properties)
        return replace(message, body=body, properties=b"", body_crc=body_crc32(body))
    if kind == "a slash":
        return replace(message, properties=properties.replace(LIGHT, WITH_SLASH))
    prefix = PREFIXES.get(kind, b"")
    if prefix and number % 2 and b"INNER_MULTI_DISPATCH" in properties and len(message.topic) > len(prefix):
        return replace(message, topic=prefix + message.topic[len(prefix) :])
    return message


def rewrite(store: Path, kind: str) -> int:
    """Change the messages of a store, leave its queues and index out, and return the number of changed messages."""
    number, count = 0, 0
    for path in sorted((store / "commitlog").iterdir()):
        raw = bytearray(path.read_bytes())
        found = walk(np.frombuffer(bytes(raw), np.uint8), 0, len(raw), MESSAGES_MAX)
        for position in found.positions.tolist():
            size = int.from_bytes(raw[position : position + 4], "big")
            old = bytes(raw[position : position + size])
            message = decode(old)
            assert message is not None
            raw[position : position + size] = new = encode(changed(message, number, kind))
            assert len(new) == size
            number, count = number + 1, count + (new != old)
        path.write_bytes(raw)
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name, ignore_errors=True)
    (store / "abort").touch()
    return count


@pytest.mark.parametrize("version", ["4.9.3", "4.9.8", "5.5.0"])
def test_each_version_dispatches_to_the_further_queues_that_the_broker_does(version: str, tmp_path: Path) -> None:
    whole = generate(tmp_path / "whole", "lmq", 11, "", version=version)
    (tmp_path / "classes").mkdir()
    differ = []
    with RecoveringBroker(tmp_path / "classes", version) as broker:
        for kind in KINDS:
            if kind == "a slash" and version != "5.5.0":
                continue  # 4.9 makes a folder in a folder for it, and such a store is refused here
            store = tmp_path / "store"
            shutil.copytree(whole, store)
            shutil.copy(tmp_path / "whole.meta.json", tmp_path / "store.meta.json")
            assert (rewrite(store, kind) > 0) is (kind != "unchanged")
            recorded = broker.recovered(store)
            assert recorded is not None
            settings = BrokerSettings.from_sources(header={"rulesVersion": version} | recorded["config"])
            ours = json.loads(json.dumps(run_recover(str(store), settings=settings)))
            if without_own_files(ours) != without_own_files(recorded):
                differ.append(kind)
            shutil.rmtree(store)
    assert differ == []
