"""The rules of filterSupportRetry that differ between versions of the broker.

Broker source: ExpressionForRetryMessageFilter.isMatchedByCommitLog of 4.9.3 and 5.5.0; KeyBuilder.parseGroup (5.5.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from store_format.broker_version import DEFAULT_VERSION, BrokerVersion, Rule, Variant, values_of

_POP_RETRY_SEPARATOR_V2: Final = "+"
_SOURCE: Final = "ExpressionForRetryMessageFilter.isMatchedByCommitLog"
_V3, _V5 = BrokerVersion.V4_9_3, BrokerVersion.V5_5_0

RETRY_RULES: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "tag_type_matches_first": Rule(
            term="filterSupportRetry with a TAG subscription",
            variants=(
                Variant(
                    _V3,
                    False,
                    (
                        "on a retry topic the group's expression for the original topic decides, even if the subscription is TAG; "
                        "the broker throws if the message has no RETRY_TOPIC"
                    ),
                    _SOURCE,
                ),
                Variant(_V5, True, "a TAG subscription matches every message", _SOURCE),
            ),
        ),
        "pop_retry_topics_end_with_a_topic": Rule(
            term="parseGroup",
            variants=(
                Variant(_V3, False, "the group is the text after %RETRY%", _SOURCE),
                Variant(_V5, True, "the group is the text after %RETRY%, up to the + of a POP retry topic", "KeyBuilder.parseGroup"),
            ),
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """The values of RETRY_RULES in one version; each field has the name of its rule there."""

    tag_type_matches_first: bool
    pop_retry_topics_end_with_a_topic: bool

    @classmethod
    def of(cls, version: BrokerVersion) -> RetryRules:
        """Return the values of a version."""
        return cls(**values_of(RETRY_RULES, version))

    def group_of(self, name: str) -> str:
        """Return the consumer group of a retry topic from its name without %RETRY%."""
        if not self.pop_retry_topics_end_with_a_topic:
            return name
        parts = name.rstrip(_POP_RETRY_SEPARATOR_V2).split(_POP_RETRY_SEPARATOR_V2)
        return parts[0] if len(parts) == 2 else name


DEFAULT_RETRY_RULES: Final = RetryRules.of(DEFAULT_VERSION)
