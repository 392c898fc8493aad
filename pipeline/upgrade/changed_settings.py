"""The settings that a later version lacks, or reads with another default or meaning, and the value that this broker gives each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.settings.settings import BrokerSettings, load_catalogue, section_of
from store_format.broker_version import BrokerVersion
from udfs.broker.version_changes import CHANGED_MEANINGS

VANISHED = "vanished"
DEFAULT = "default"
MEANING = "meaning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSetting:
    """A setting that differs between two versions.

    Attributes:
        name: the setting's name.
        kind: VANISHED, DEFAULT or MEANING.
        given: value that this broker sets; None if it sets none.
        before: default, or the meaning, in the earlier version.
        after: default, or the meaning, in the later version; None if the setting vanished.
        matters: whether this broker behaves otherwise in the later version, unless the setting is changed.
        source: class of the setting; for MEANING the methods of both versions.
    """

    name: str
    kind: str
    given: Any
    before: Any
    after: Any
    matters: bool
    source: str


def changed_settings(settings: BrokerSettings, earlier: BrokerVersion, later: BrokerVersion) -> list[ChangedSetting]:
    """The settings that differ between two versions; the settings that matter to this broker come first.

    Args:
        settings: the broker's settings.
        earlier: version that the broker has.
        later: version to which it is upgraded.
    """
    before, after = load_catalogue(earlier), load_catalogue(later)
    found: list[tuple[Any, ...]] = []
    for name, setting in before.items():
        given = settings.explicit(name)
        if name not in after:
            found.append((name, VANISHED, given, setting.default, None, given is not None, section_of(name)))
        elif setting.default != after[name].default:
            found.append((name, DEFAULT, given, setting.default, after[name].default, given is None, section_of(name)))
    for one in CHANGED_MEANINGS:
        if earlier.place < one.since.place <= later.place:
            given = settings.explicit(one.name)
            source = f"{one.source_before}; {one.source_after} ({one.since.value})"
            matters = one.matters(str(settings.value("brokerRole")), given)
            found.append((one.name, MEANING, given, one.before, one.after, matters, source))
    names = ("name", "kind", "given", "before", "after", "matters", "source")
    changes = [ChangedSetting(**dict(zip(names, one, strict=True))) for one in found]
    return sorted(changes, key=lambda one: (not one.matters, one.kind, one.name))


def new_settings(earlier: BrokerVersion, later: BrokerVersion) -> int:
    """The number of settings that only the later version has."""
    return len(load_catalogue(later).keys() - load_catalogue(earlier).keys())
