"""The versions of the broker whose rules are known, and the form in which a rule that differs between them is written down.

A rule that differs is a `Rule`: a table of its variants, each with the version since which it holds and its place in the broker's source.
Each rule stands in the room of its subject. Code takes the values of one version, and never tests the version itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")


class BrokerVersion(Enum):
    """A version of the broker; the value is its name, and the order is that of the releases."""

    V4_9_3 = "4.9.3"
    V4_9_8 = "4.9.8"
    V5_5_0 = "5.5.0"

    @property
    def place(self) -> int:
        """The place of the version in the order of the releases."""
        return list(BrokerVersion).index(self)


DEFAULT_VERSION: Final = BrokerVersion.V4_9_3


@dataclass(frozen=True, slots=True)
class Variant(Generic[T]):
    """What a rule says from one version on.

    Attributes:
        since: the first known version with this variant.
        value: the variant as the code takes it.
        meaning: the variant in words.
        source: class and method of the broker.
    """

    since: BrokerVersion
    value: T
    meaning: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[T]):
    """A rule of the broker that differs between versions.

    Attributes:
        term: the rule in the broker's own words.
        variants: the variants, the oldest first; the first one is of the oldest known version.
    """

    term: str
    variants: tuple[Variant[T], ...]

    def of(self, version: BrokerVersion) -> Variant[T]:
        """Return the variant that holds in a version."""
        return next(variant for variant in reversed(self.variants) if variant.since.place <= version.place)


def values_of(rules: Mapping[str, Rule[Any]], version: BrokerVersion) -> dict[str, Any]:
    """Return the value of each rule in a version, by the rule's name."""
    return {name: rule.of(version).value for name, rule in rules.items()}
