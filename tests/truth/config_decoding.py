"""Decodes config files with the broker's own code, through a program of ours (data/java/DecodeConfigs.java)."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path
from typing import Self

from tests.truth.oracle import harness
from tests.truth.places import DATA

# what ConfigManager.decode of each file hands to fastjson in 4.9.3
CLASSES = {
    "topics": "common.protocol.body.TopicConfigSerializeWrapper",
    "subscriptionGroup": "broker.subscription.SubscriptionGroupManager",
    "consumerOffset": "broker.offset.ConsumerOffsetManager",
    "delayOffset": "store.schedule.DelayOffsetSerializeWrapper",
    "consumerFilter": "broker.filter.ConsumerFilterManager",
}


class DecodingBroker:
    """A process with the broker's classes; `with` ends it."""

    def __init__(self, folder: Path) -> None:
        """Compile the program into a folder."""
        told = subprocess.run([harness(), "jars"], check=True, capture_output=True, text=True, timeout=600).stdout.split()
        jars = f"{os.environ.get('ORACLE_LIB') or f'{told[-1]}/lib-4.9.3'}/*"
        source = DATA / "java" / "DecodeConfigs.java"
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", folder, source], check=True, capture_output=True, timeout=120)
        self._command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{folder}:{jars}", "DecodeConfigs"]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def decoded(self, name: str, text: bytes) -> bytes | None:
        """Return a file's text after the broker has decoded it and encoded it again; None if the broker fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"org.apache.rocketmq.{CLASSES[name]}\t".encode() + base64.b64encode(text) + b"\n")
        self._process.stdin.flush()
        # fastjson prints to standard output when it finds no class
        told = next((line for line in self._process.stdout if line[:1] in {b"=", b"!"}), b"")
        assert told, f"no answer to {text!r}"
        return base64.b64decode(told[1:]) if told.startswith(b"=") else None
