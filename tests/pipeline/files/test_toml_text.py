"""TOML of a file is read as tomllib reads it, unless a key has very many parts."""

from __future__ import annotations

import tomllib

import pytest

from pipeline.files.toml_text import parsed_toml
from tests.truth.places import PROJECT


@pytest.mark.parametrize("name", ["examples/slow.toml", "examples/workload.toml", "pyproject.toml"])
def test_a_file_is_read_as_tomllib_reads_it(name: str) -> None:
    text = (PROJECT / name).read_text("utf-8")
    assert parsed_toml(text) == tomllib.loads(text)


def test_texts_with_many_dots_are_no_keys() -> None:
    text = f'a.b."c.d" = "{"1." * 50}"\n"{"x" * 1000}" = {[1.5] * 40}\nc = "{"word. " * 50}"'
    assert parsed_toml(text) == tomllib.loads(text)


@pytest.mark.parametrize("part", ["a", '"a b"', "'a'"])
@pytest.mark.parametrize("form", ["{key} = 1", "[{key}]", "[[{key}]]", "x = {{ y = 1, {key} = 1 }}"])
def test_a_key_of_very_many_parts_is_refused_with_its_line(part: str, form: str) -> None:
    key = " . ".join([part] * 20_000)
    with pytest.raises(ValueError, match=r"a key of more than 100 parts \(at line 2\)"):
        parsed_toml("\n" + form.format(key=key))


@pytest.mark.parametrize("text", ["a" * 1_000_000, '"' * 1_000_001, "a." * 99 + "=", "a'" * 300_000])
def test_what_is_no_toml_is_refused_by_tomllib(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        parsed_toml(text)
