"""Which texts are blank in Java, as brokers 4.9.3 and 4.9.8 took names of further queues: a blank text names no queue."""

from __future__ import annotations

import pytest

from store_format.java.blanks import is_blank


@pytest.mark.parametrize("text", [" ", "\x1c", "\u1680", "\u3000", "\t \n", "", None])
def test_a_text_of_blanks_names_no_queue(text: str | None) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", ["\x85", "\xa0", "\u2007", "\u202f", " \xa0", " a "])
def test_what_is_no_blank_in_java_names_a_queue(text: str) -> None:
    assert not is_blank(text)
