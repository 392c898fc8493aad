"""The list of all rules that differ between versions: no rule of the code is missing from it, and each says what it has to."""

from __future__ import annotations

import gc
from importlib import import_module
from itertools import pairwise

import pytest

from store_format.broker_version import DEFAULT_VERSION, Rule
from tests.truth.places import PROJECT, tracked
from udfs.version_rules import ALL_RULES, RULES_BY_SUBJECT

PACKAGES = {"store_format", "udfs", "pipeline"}
PYTHON = [path for path in tracked() if path.suffix == ".py" and path.relative_to(PROJECT).parts[0] in PACKAGES]
# a module that makes a rule names the class
WITH_RULES = [path.relative_to(PROJECT) for path in PYTHON if "Rule(" in path.read_text("utf-8")]


def test_every_rule_of_the_code_is_in_the_list_once() -> None:
    assert len(WITH_RULES) > 8
    assert {path.parts[0] for path in WITH_RULES} == {"store_format", "udfs"}, "pipeline has no rules of the broker"
    for path in WITH_RULES:
        import_module(".".join(path.with_suffix("").parts))
    made = {id(one): one.term for one in gc.get_objects() if type(one) is Rule}  # isinstance would call dead weak references
    listed = {id(rule): rule.term for rule in ALL_RULES.values()}
    assert made == listed
    assert sum(map(len, RULES_BY_SUBJECT.values())) == len(ALL_RULES) == len(listed), "two rules have one name, or a rule has two"


@pytest.mark.parametrize("name", ALL_RULES)
def test_a_rule_holds_in_every_version_and_differs_in_one(name: str) -> None:
    first, *later = ALL_RULES[name].variants
    assert first.since is DEFAULT_VERSION
    assert later
    assert all(one.since.place < other.since.place for one, other in pairwise((first, *later)))
    assert all(one.value != other.value for one, other in pairwise((first, *later)))
    assert all(one.meaning and one.source for one in (first, *later))
