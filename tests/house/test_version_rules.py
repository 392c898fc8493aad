"""The list of all rules that differ between versions: no rule of the code is missing from it, and each says what it has to."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

import pytest

from store_format.broker_version import DEFAULT_VERSION, Rule
from tests.truth.places import PROJECT, tracked
from udfs.version_rules import ALL_RULES, RULES_BY_SUBJECT

CODE = ("store_format", "udfs", "pipeline")


def terms_of_rules(source: str) -> Iterator[str]:
    """The term of each Rule that a module makes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].partition("[")[0] == Rule.__name__:
            yield from (ast.literal_eval(one.value) for one in node.keywords if one.arg == "term")


def test_every_rule_of_the_code_is_in_the_list_once() -> None:
    files = [path for path in tracked() if path.suffix == ".py" and path.relative_to(PROJECT).parts[0] in CODE]
    made = Counter(term for path in files for term in terms_of_rules(path.read_text("utf-8")))
    assert made == Counter(rule.term for rule in ALL_RULES.values())
    assert sum(map(len, RULES_BY_SUBJECT.values())) == len(ALL_RULES), "two rules have one name"


def test_a_rule_is_found_however_it_is_written() -> None:
    source = "A = Rule(term='a', variants=())\nB: X = {'b': broker_version.Rule[int](variants=(), term='b')}"
    assert list(terms_of_rules(source)) == ["a", "b"]


@pytest.mark.parametrize("name", ALL_RULES)
def test_a_rule_holds_in_every_version_and_differs_in_one(name: str) -> None:
    first, *later = ALL_RULES[name].variants
    assert first.since is DEFAULT_VERSION
    assert [one.since.place for one in later] == sorted({one.since.place for one in later} - {first.since.place}) != []
    assert len({variant.value for variant in (first, *later)}) == 1 + len(later)
    assert all(one.meaning and one.source for one in (first, *later))
