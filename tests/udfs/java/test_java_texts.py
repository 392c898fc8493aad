"""Numbers and Booleans that are parsed from texts as java.lang does."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from udfs.java import texts as java_texts

DENORMAL = 4.9e-324


@pytest.mark.parametrize("text", ["true", "TRUE", "tRuE"])
def test_true_is_true_in_any_case(text: str) -> None:
    assert java_texts.boolean_value_of(text)


@pytest.mark.parametrize("text", ["", "1", "yes", "true ", " true", "ıtrue", "truE\u0301"])
def test_all_else_is_false(text: str) -> None:
    assert not java_texts.boolean_value_of(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-0", 0), ("+5", 5), ("-5", -5), ("0" * 5000 + "7", 7), ("٣", 3), ("１२", 12), ("-2147483648", -(2**31))],
)
def test_whole_numbers_take_a_sign_and_digits_of_any_script(text: str, value: int) -> None:
    assert java_texts.integer_value_of(text) == value
    assert java_texts.long_value_of(text) == value


@pytest.mark.parametrize(
    "text", ["", "+", "-", "--1", "+-1", " 1", "1 ", "1.0", "1e3", "0x10", "1_0", "1L", "𝟏", "²", "½", "一", "9" * 5000, "١-"]
)
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    for value_of in (java_texts.integer_value_of, java_texts.long_value_of):
        with pytest.raises(java_texts.NumberFormatError, match=r"expected .* found"):
            value_of(text)


@pytest.mark.parametrize(("value_of", "bits"), [(java_texts.integer_value_of, 31), (java_texts.long_value_of, 63)])
def test_whole_numbers_end_where_their_bits_do(value_of: Callable[[str], int], bits: int) -> None:
    assert (value_of(str(2**bits - 1)), value_of(str(-(2**bits)))) == (2**bits - 1, -(2**bits))
    for value in (2**bits, -(2**bits) - 1, 10 * 2**bits):
        with pytest.raises(java_texts.NumberFormatError):
            value_of(str(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1", 1.0), ("1.", 1.0), (".5", 0.5), ("-1.5e3", -1500.0), ("1.5E+03", 1500.0), ("1d", 1.0), ("1.5F", 1.5), ("1e3D", 1000.0)],
        *[(" 1 ", 1.0), ("\x001\x1f", 1.0), ("\t1\n", 1.0), ("1e400", math.inf), ("-1e400", -math.inf), ("1e-400", 0.0)],
        *[("Infinity", math.inf), ("+Infinity", math.inf), ("-Infinity", -math.inf), ("1e99999999999", math.inf), ("0e99999999999", 0.0)],
        *[("0x1p3", 8.0), ("0X1.8P1", 3.0), ("0x.8p0", 0.5), ("0x1.p0", 1.0), ("-0x1p+3d", -8.0), ("0x0p99999999999", 0.0)],
        *[("0x1p99999999999", math.inf), ("0x1p-99999999999", 0.0), ("0x1p1024", math.inf), ("0x1p-1074", DENORMAL), ("0x1p007", 128.0)],
        *[("9007199254740993", 9007199254740992.0), ("2.4703282292062328e-324", DENORMAL), ("2.47e-324", 0.0)],
    ],
)
def test_decimals_are_trimmed_and_take_every_form_of_java(text: str, value: float) -> None:
    assert java_texts.double_value_of(text) == value


def test_some_decimals_compare_as_no_number_does() -> None:
    assert math.isnan(java_texts.double_value_of("NaN"))
    assert math.isnan(java_texts.double_value_of("-NaN"))
    for text in ("-0", "-0.0", "-1e-400", "-0x0p0", "-0x1p-99999999999"):
        assert math.copysign(1, java_texts.double_value_of(text)) == -1


NO_DECIMALS = [
    *("", " ", ".", "+", "e5", "1e", "1e+", "1 0", "--1", "1dd", "1df", "1e5.0", "nan", "NAN", "infinity", "Inf", "NaNd", "Infinityf"),
    *("0x1", "0x", "0x1p", "0xp1", "0x.p1", "1p3", "1_0", "1,0", "\u00a01", "1\u3000", "１", "1L"),
]


@pytest.mark.parametrize("text", NO_DECIMALS)
def test_what_is_no_decimal_is_refused(text: str) -> None:
    with pytest.raises(java_texts.NumberFormatError, match="expected a double"):
        java_texts.double_value_of(text)


@given(st.floats(allow_nan=False))
def test_decimals_go_round(value: float) -> None:
    assert java_texts.double_value_of(repr(value).replace("inf", "Infinity")) == value
    assert java_texts.double_value_of(f"{value.hex().replace('inf', 'Infinity')}") == value


@given(st.text(max_size=20))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    for value_of in (java_texts.integer_value_of, java_texts.long_value_of, java_texts.double_value_of):
        try:
            value_of(text)
        except java_texts.NumberFormatError:
            continue
