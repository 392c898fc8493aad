"""Makes random SQL92 expressions, good and bad ones, and properties that are awkward to compare."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any


def _words(text: str) -> list[str]:
    return re.split("[ \n]", text)


NUMBERS = _words("""0 1 2 12 5L 5l 0L 01 1.0 1. .5 00.5 1.e5 1.5e3 1E-3 1e 1d 3.L 0.0 0e5 2147483647 2147483648 9223372036854775807
9223372036854775808 1e400 4.9E-324 2.4e-324 2.5e-324 1.7976931348623159E308 1e22 1e23 9007199254740993 9007199254740993.0 0.1""")
NAMES = ["a", "b", "c", "t", "_y", "$x", "A", "in_x", "missing", "NOTa", "IN", "is", "true_", "and"]
STRINGS = ["''", "'x'", "'it''s'", "'1'", "'true'", "' 1'", "''''", "'a\nb'", "'--x'", "'中文'", "'🚀'", "'/*'", "'\\'", "'1.0'", "'\x00'"]
BLANKS = [" ", " ", " ", "  ", "\t", "\n", "", "\r\n", "\f", "/* c */", "/**/", "/***/", "--c\n", "/* ' */", "-- ' \r", "/*/ */"]
WORDS = ["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "LIKE"]
SIGNS = _words("""= <> > >= < <= + - ( ) , -- / * ; ! != == << => =< . ' " @ # % | || && \\ é { [ ? : ~ ` ^ \x0b \x00 İ ı K""")
VALUES = _words("""1 2 0 -1 +5 5 1.0 1.5 abc true TRUE True false x it's NaN -NaN Infinity -Infinity infinity 0x10 0x1p3 0x1.8P1 0x.8p0 0x1p
0x1p99999999999 0x0p99999999999 1e400 -1e400 1e-400 0.0 -0.0 -0 1d 1f 1.5F 1. 1.e3 .5 . e5 1e 1e+ 2147483647 2147483648 -2147483648
-2147483649 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 ٣ １２ 𝟏 १.५ 1_000 1,000 --1 +-1 + -
00000000000000000000000001 0.10000000000000000555 9007199254740993 123456789012345678 1234567890123456789012 1e22 1e23 8.5e22 中文 🚀
é 4.9E-324 2.4703282292062328e-324 1.7976931348623157e308 1e0000000000000000000005 1e99999999999999999999 0e99999999999999999999
0.000000000000000000000000000001e30 1.5dd 1df nan 0x 0X1P+3D 12L ٣४ tRuE ıtrue""")
BLANK_VALUES = ["", " 1 ", "1 ", "\u00a01", "1\u00a0", "\x001", "\t1\n", "\x1f1", "a\nb", "true ", "1e5 "]


class ExpressionMaker:
    """Makes expressions and properties out of a seed."""

    def __init__(self, seed: int | str, names: Sequence[str] = NAMES) -> None:
        self.digits = random.Random(seed)
        self.names = names  # of properties

    def case(self) -> dict[str, Any]:
        """An expression with properties to evaluate it on."""
        pick, chance = self.digits.choice, self.digits.random()
        if chance < 0.35:
            text = self.comparison_of_properties()
        elif chance < 0.7:
            text = self.disjunction(2)
        elif chance < 0.92:
            text = self.damaged(self.disjunction(2))
        else:
            soup = [pick(pick([SIGNS, WORDS, NUMBERS, STRINGS, self.names, BLANKS])) for _ in range(self.digits.randint(1, 9))]
            text = pick(["", " "]).join(soup)
        return {"expression": text, "properties": [self.properties() for _ in range(6)]}

    def properties(self) -> dict[str, str]:
        return {name: self.digits.choice(VALUES + BLANK_VALUES) for name in NAMES[:8] if self.digits.random() < 0.75}

    def word(self, word: str) -> str:
        return self.digits.choice([word, word, word.lower(), word.title(), word.swapcase()])

    def blank(self) -> str:
        return self.digits.choice(BLANKS) if self.digits.random() < 0.5 else " "

    def comparison_of_properties(self) -> str:
        pick = self.digits.choice
        a, b, number = pick(self.names[:9]), pick(self.names[:9]), pick(NUMBERS)
        symbol, other = pick(["=", "<>", ">", ">=", "<", "<="]), pick([*NUMBERS, *STRINGS, *self.names])
        forms = [
            f"{a} {symbol} {pick(['', '-'])}{number}",
            f"{number} {symbol} {a}",
            f"{a} {symbol} {b}",
            f"{a} = {pick(STRINGS)}",
            f"({a} > 1) {symbol} {b}",
            f"{a} {symbol} ({b} > 1)",
            f"{a} {symbol} -({b} > 1)",
            f"-({a} > 1) {symbol} {other}",
            f"-({a} > 1) BETWEEN {other} AND {number}",
            f"{a} BETWEEN -({b} > 1) AND {number}",
            f"{a} NOT BETWEEN {other} AND -({b} > 1)",
        ]
        return pick(forms)

    def primary(self, depth: int) -> str:
        chance = self.digits.random()
        if chance < 0.45:
            return self.digits.choice(self.names)
        if chance < 0.8 or not depth:
            return self.digits.choice([*NUMBERS, *STRINGS, *map(self.word, ["TRUE", "FALSE", "NULL"])])
        return f"({self.blank()}{self.disjunction(depth - 1)}{self.blank()})"

    def unary(self, depth: int) -> str:
        chance = self.digits.random()
        if chance < 0.8:
            return self.primary(depth)
        return self.digits.choice(["-" + self.blank(), "+" + self.blank(), self.word("NOT") + " "]) + self.unary(depth)

    def comparison(self, depth: int) -> str:
        text, chance = self.unary(depth), self.digits.random()
        negated = self.word("NOT") + " " if self.digits.random() < 0.3 else ""
        if chance < 0.3:
            text += self.blank() + self.digits.choice([">", ">=", "<", "<="]) + self.blank() + self.unary(depth)
        elif chance < 0.42:
            text += f" {negated}{self.word('BETWEEN')} {self.unary(depth)} {self.word('AND')} {self.unary(depth)}"
        elif chance < 0.52:
            strings = [self.digits.choice(STRINGS) for _ in range(self.digits.randint(1, 7))]
            text += f" {negated}{self.word('IN')}{self.blank()}({(self.blank() + ',').join(strings)})"
        return text

    def equality(self, depth: int) -> str:
        text = self.comparison(depth)
        while self.digits.random() < 0.35:
            if self.digits.random() < 0.7:
                text += self.blank() + self.digits.choice(["=", "<>"]) + self.blank() + self.comparison(depth)
            else:
                text += f" {self.word('IS')} {self.digits.choice(['', 'NOT ', 'not '])}{self.word('NULL')}"
        return text

    def disjunction(self, depth: int) -> str:
        text = self.equality(depth)
        while self.digits.random() < 0.35:
            text += f" {self.word(self.digits.choice(['AND', 'OR']))} {self.equality(depth)}"
        return text

    def damaged(self, text: str) -> str:
        for _ in range(self.digits.choice([1, 1, 2, 3])):
            at, chance = self.digits.randint(0, len(text)), self.digits.random()
            if chance < 0.35:
                text = text[:at] + text[at + 1 :]
            elif chance < 0.8:
                text = text[:at] + self.digits.choice(SIGNS + WORDS + NUMBERS + STRINGS + BLANKS) + text[at:]
            else:
                text = text[:at]
        return text
