"""The state of a running scenario: its broker, its clients' connections, and the pulls that later steps wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.scenarios.scenario_file import Step
from store_format.remoting.headers import PullMessageRequestHeader
from udfs.broker.memory_broker import MemoryBroker, PullCall


@dataclass(slots=True)
class Run:
    """The state of a running scenario: its pulls by their ids, and how often each client has closed its connection."""

    broker: MemoryBroker
    calls: dict[str, PullCall] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)

    def client(self, step: Step, default: str = "c1") -> str:
        """Return the connection of a step's client; a new one after the client closed its connection."""
        name = step.get("client") or default
        return f"{name}#{self.opened.setdefault(name, 0)}"

    def wait(self, call: PullCall, longest: int) -> None:
        """Advance the clock until a pull is answered, by `longest` ms at most."""
        self.broker.advance(self.broker.now + longest, lambda: call.answered_at is not None)

    def call(self, client: str, ext: Mapping[str, Any] | None, *, oneway: bool = False, is_lite: bool = False) -> PullCall:
        """Send a pull and return it."""
        given = ext_of(ext)
        call = PullCall(
            header=PullMessageRequestHeader.decode(given),
            has_bad_number=PullMessageRequestHeader.has_bad_number(given, of_5=self.broker.settings.rules.headers_have_more_fields),
            client=client,
            sent_at=self.broker.now,
            oneway=oneway,
            is_lite=is_lite,
        )
        self.broker.pull(call)
        return call


def ext_of(ext: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    """Return ext fields as sent: values as texts, without null values."""
    return None if ext is None else {name: _text(value) for name, value in ext.items() if value is not None}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
