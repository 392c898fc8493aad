"""The broker's rules stand in udfs, none in pipeline. The tests find those rules that a module's text shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.truth.places import PROJECT
from udfs.pull import batch_caps
from udfs.pull.codes import GetMessageStatus, ResponseCode
from udfs.pull.offset_correction import OFFSET_CHECKS

NAMES = {*GetMessageStatus.__members__, *ResponseCode.__members__}
# the window of a scan in bytes, as the broker has it
WINDOW_BYTES = 16_000
COMPILERS = {"compiled", "bare", "njit", "jit"}


def rules_in(source: str) -> Iterator[str]:
    """The rules of the broker in a module's text: comparisons with names of statuses and codes, the scan's window, compiled functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            for part in (node.left, *node.comparators):
                yield from (
                    f"compares with {leaf.value}" for leaf in ast.walk(part) if isinstance(leaf, ast.Constant) and leaf.value in NAMES
                )
        elif isinstance(node, ast.match_case):
            yield from (
                f"matches {leaf.value}" for leaf in ast.walk(node.pattern) if isinstance(leaf, ast.Constant) and leaf.value in NAMES
            )
        elif isinstance(node, ast.Constant) and type(node.value) is int and node.value == WINDOW_BYTES:
            yield f"has the number {node.value}"
        elif isinstance(node, ast.FunctionDef):
            names = {ast.unparse(one).partition("(")[0].rpartition(".")[2] for one in node.decorator_list}
            yield from (f"compiles {node.name}" for _ in names & COMPILERS)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("if row['status'] == 'OFFSET_TOO_SMALL': pass", "compares with OFFSET_TOO_SMALL"),
        ("x = name in {'FOUND', 'y'}", "compares with FOUND"),
        ("match status:\n    case 'NO_MESSAGE_IN_QUEUE': pass", "matches NO_MESSAGE_IN_QUEUE"),
        ("window = max(16000, wanted * 20)", "has the number 16000"),
        ("@compiled\ndef scan(a): return a", "compiles scan"),
    ],
)
def test_a_rule_is_recognised(source: str, found: str) -> None:
    assert list(rules_in(source)) == [found]


def test_the_kernel_and_the_caps_hold_rules() -> None:
    assert "has the number 16000" in rules_in(Path(batch_caps.__file__).read_text("utf-8"))
    assert any(rule.startswith("compiles") for rule in rules_in((PROJECT / "udfs/pull/get_message.py").read_text("utf-8")))


def test_pipeline_holds_no_rule_of_the_broker() -> None:
    modules = sorted((PROJECT / "pipeline").rglob("*.py"))
    assert len(modules) > 50
    found = {str(path.relative_to(PROJECT)): list(rules_in(path.read_text("utf-8"))) for path in modules}
    assert {name: rules for name, rules in found.items() if rules} == {}


def test_the_offset_checks_are_written_in_udfs_only() -> None:
    texts = {path: path.read_text("utf-8") for path in (PROJECT / "pipeline").rglob("*") if path.suffix in {".py", ".sql"}}
    generated = PROJECT / "pipeline" / "sql" / "init.sql"
    conditions = [check.condition for check in OFFSET_CHECKS]
    assert all(condition in (PROJECT / "udfs/pull/offset_correction.py").read_text("utf-8") for condition in conditions)
    assert [str(path) for path, text in texts.items() if path != generated and any(condition in text for condition in conditions)] == []
