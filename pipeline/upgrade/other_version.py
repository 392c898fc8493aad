"""What another version of the broker answers to one pull, and the rule that makes the difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.questions.broker_checks import ExplainedPull
from pipeline.questions.explain import one_request
from pipeline.settings.settings import BrokerSettings
from pipeline.terminal import safe_text
from pipeline.upgrade.compared_pulls import ComparedPulls, RuleSets, compare_pulls, compare_pulls_here
from store_format.broker_version import BrokerVersion
from udfs.version_rules import said_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherVersion:
    """The comparison of one pull between the explained version and another one.

    Attributes:
        version: the other version.
        earlier: the earlier of the two versions.
        later: the later of the two versions.
        compared: the comparison from the earlier to the later version.
    """

    version: BrokerVersion
    earlier: BrokerVersion
    later: BrokerVersion
    compared: ComparedPulls


def differences_to(broker: OpenedBroker, pull: ExplainedPull, settings: BrokerSettings, version: BrokerVersion) -> OtherVersion:
    """Answer a pull by the rules of the broker's version and of another one.

    Args:
        broker: the broker whose store answers.
        pull: the pull.
        settings: settings of the broker, which name its version.
        version: the other version.
    """
    earlier, later = sorted((settings.version, version), key=lambda one: one.place)
    rules = RuleSets.of(broker, *(settings.under(one).pull_settings() for one in (earlier, later)))
    request = one_request(broker, pull, rules.earlier)
    if broker.lake.has_session:
        compared = compare_pulls(rules, broker, request.frame(broker), at=request.at, profile=request.profile)
    else:
        compared = compare_pulls_here(rules, broker, [request.requests], at=request.at)
    return OtherVersion(version=version, earlier=earlier, later=later, compared=compared)


def told(other: OtherVersion) -> dict[str, Any]:
    """The comparison as JSON: the version, and the rules that make a difference with both answers."""
    return {
        "version": other.version.value,
        "rules": [{"rule": one.rule or None} | _said(other, one.rule) | _answers(other, one.examples[0]) for one in other.compared.rules],
    }


def _said(other: OtherVersion, rule: str) -> dict[str, dict[str, str]]:
    return said_of(rule, (other.earlier, other.later))


def _answers(other: OtherVersion, example: dict[str, Any]) -> dict[str, Any]:
    return {"answers": {other.earlier.value: example["before"], other.later.value: example["after"]}}


def lines_of(other: OtherVersion) -> Iterator[str]:
    """The comparison as lines of text, without commands of a terminal."""
    if not other.compared.differ:
        yield f"\nbroker {other.version.value} gives the same answer"
        return
    yield f"\nbroker {other.version.value} answers otherwise" + ("" if other.compared.seen else ", in what no client sees")
    for one in other.compared.rules:
        for version, said in _said(other, one.rule).items():
            yield f"  rule {one.rule} of {version}: {said['says']} ({said['source']})"
    example = other.compared.rules[0].examples[0]
    for version, side in _answers(other, example)["answers"].items():
        yield safe_text(f"  {version}: {json.dumps(side, ensure_ascii=False)}")
