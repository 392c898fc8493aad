"""Reads Spark's event log: what executors and tasks of a command did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LOST = ("ExecutorLostFailure", "FetchFailed", "Resubmitted")


class EventLog:
    """The event log that a command writes in a new folder.

    Attributes:
        conf: settings of Spark that make it write there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.conf = ("spark.eventLog.enabled=true", f"spark.eventLog.dir={folder.as_uri()}", "spark.eventLog.compress=false")

    def events(self, name: str) -> Iterator[dict[str, Any]]:
        """The events of a kind, such as `TaskEnd`."""
        for path in sorted(self._folder.rglob("*")):
            if not path.is_file():
                continue
            for line in path.read_text("utf-8", "replace").splitlines():
                if line.startswith(f'{{"Event":"SparkListener{name}"') and line.endswith("}"):
                    yield json.loads(line)

    def missed_executor(self) -> bool:
        """Whether a lost executor had a task, or rows that another task needed."""
        return any(event["Task End Reason"]["Reason"] in _LOST for event in self.events("TaskEnd"))

    def executors(self) -> int:
        """How many executors the command had, one after another or at once."""
        return sum(1 for _ in self.events("ExecutorAdded"))

    def speculative(self) -> Counter[str]:
        """How each speculative attempt of a task ended; `Success` means that it was quicker than the first attempt."""
        ends = (event for event in self.events("TaskEnd") if event["Task Info"]["Speculative"])
        return Counter(event["Task End Reason"]["Reason"] for event in ends)

    def failures(self) -> Counter[str]:
        """The reasons of tasks that did not succeed."""
        return Counter(reason for event in self.events("TaskEnd") if (reason := event["Task End Reason"]["Reason"]) != "Success")
