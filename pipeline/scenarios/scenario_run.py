"""A scenario that runs: its broker, its clients' connections, and the pulls whose answers are collected later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.scenarios.scenario_file import Step
from store_format.remoting.headers import PullMessageRequestHeader
from udfs.broker.memory_broker import MemoryBroker, PullCall


@dataclass(slots=True)
class Run:
    """A scenario that runs.

    Attributes:
        calls: pulls by their ids.
        opened: how often each client has closed its connection.
    """

    broker: MemoryBroker
    calls: dict[str, PullCall] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)

    def client(self, step: Step, default: str = "c1") -> str:
        """The connection of a step's client: a new one after the last was closed."""
        name = step.get("client") or default
        return f"{name}#{self.opened.setdefault(name, 0)}"

    def wait(self, call: PullCall, longest: int) -> None:
        """Let time go on until a pull is answered."""
        self.broker.advance(self.broker.now + longest, lambda: call.answered_at is not None)

    def call(self, client: str, ext: Mapping[str, Any] | None, *, oneway: bool = False) -> PullCall:
        """Send a pull."""
        header = PullMessageRequestHeader.decode(ext_of(ext))
        call = PullCall(header=header, client=client, sent_at=self.broker.now, oneway=oneway)
        self.broker.pull(call)
        return call


def ext_of(ext: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    """Ext fields as they go over the wire: texts; what is null is left out."""
    return None if ext is None else {name: _text(value) for name, value in ext.items() if value is not None}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
