"""The grammar of SQL92 filters: tokens and rules as the broker's generated parser has them.

Broker source (4.9.3): SelectorParser.jj, and the SelectorParser and SelectorParserTokenManager that JavaCC made of it.
Rules: the longest token wins; keywords are keywords in any case, names are not. NOT and the signs bind tighter than comparisons.
Surprises: the parser does not check for the end of the text. It stops at the first token that cannot continue the expression, and the text
after that token is never tokenized: `a = 1 garbage` and `a LIKE 'x'` compile, `a = 1;` does not. `--` is a comment only if its line has a
line break; else it is two signs. There is no octal and no hexadecimal: `01` is 0 followed by 1, `0x1` is 0 followed by x1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final

from lark import Lark, Token, Transformer, UnexpectedToken
from lark.lexer import Lexer

from udfs.filters import sql92_expression as e
from udfs.filters.sql92_expression import Operand, Sql92Error

# The broker accepts any expression that fits into a frame of 16 MiB. Parsing takes a second for each 200 KiB of operators.
MAX_LENGTH: Final = 1 << 20

_SELECTOR: Final = """
selector: or_expression

?or_expression: and_expression
    | or_expression _OR and_expression                  -> create_or
?and_expression: equality
    | and_expression _AND equality                      -> create_and
?equality: comparison
    | equality _EQUAL comparison                        -> create_equal
    | equality _NOT_EQUAL comparison                    -> create_not_equal
    | equality _IS _NULL                                -> create_is_null
    | equality _IS _NOT _NULL                           -> create_is_not_null
?comparison: unary
    | comparison ORDER unary                            -> create_order
    | comparison _BETWEEN unary _AND unary              -> create_between
    | comparison _NOT _BETWEEN unary _AND unary         -> create_not_between
    | comparison _IN _OPEN strings _CLOSE               -> create_in
    | comparison _NOT _IN _OPEN strings _CLOSE          -> create_not_in
    | comparison PART STRING                            -> create_part
    | comparison _NOT PART STRING                       -> create_not_part
?unary: primary
    | _PLUS unary                                       -> plus
    | _MINUS unary                                      -> create_negate
    | _NOT unary                                        -> create_not
?primary: STRING                                        -> string
    | DECIMAL                                           -> decimal
    | FLOATING_POINT                                    -> floating_point
    | _TRUE                                             -> true
    | _FALSE                                            -> false
    | _NULL                                             -> null
    | NAME                                              -> variable
    | _OPEN or_expression _CLOSE                        -> bracket
strings: STRING                                         -> first_string
    | strings _COMMA STRING                             -> next_string

%declare _OR _AND _EQUAL _NOT_EQUAL _IS _NULL _NOT ORDER _BETWEEN _IN _OPEN _CLOSE _PLUS _MINUS
%declare STRING DECIMAL FLOATING_POINT _TRUE _FALSE NAME _COMMA PART
"""

_KEYWORDS: Final = {word: f"_{word}" for word in ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS")}
_TEXT_KEYWORDS: Final = _KEYWORDS | dict.fromkeys(("CONTAINS", "STARTSWITH", "ENDSWITH"), "PART")
_SIGNS: Final = {"=": "_EQUAL", "<>": "_NOT_EQUAL", "(": "_OPEN", ")": "_CLOSE", ",": "_COMMA", "+": "_PLUS", "-": "_MINUS"}

_LONGEST_KEYWORD: Final = max(map(len, _TEXT_KEYWORDS))

_KINDS: Final = r"""
    (?P<FLOATING_POINT> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
  | (?P<DECIMAL> 0 | [1-9][0-9]*[lL]? )
  | (?P<STRING> '[^']*(?:''[^']*)*' )
  | (?P<NAME> [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<ORDER> >=? | <(?!>)=? )
  | (?P<SIGN> <> | [=(),+-] )
"""
_TOKEN_OF_LAST_LINE: Final = re.compile(rf"(?P<SKIP> [ \t\n\r\f]+ | /\*.*?\*/ ) | {_KINDS}", re.VERBOSE | re.DOTALL)
_TOKEN: Final = re.compile(rf"(?P<SKIP> [ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*.*?\*/ ) | {_KINDS}", re.VERBOSE | re.DOTALL)


class SelectorTokens(Lexer):
    """The tokenizer of expressions; it makes each token only when the parser needs it."""

    keywords: Mapping[str, str] = _KEYWORDS

    def __init__(self, lexer_conf: Any) -> None:
        """Accept lark's configuration, which has nothing about declared tokens."""

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]
        """Yield the tokens of a text.

        Raises:
            Sql92Error: no token begins at the next character.
        """
        # A comment needs a line break after it. Searching for one at each `--` would take quadratic time.
        last_line = max(text.rfind("\n"), text.rfind("\r")) + 1
        at = 0
        while at < len(text):
            found = (_TOKEN if at < last_line else _TOKEN_OF_LAST_LINE).match(text, at)
            if found is None or found.lastgroup is None:
                raise Sql92Error(f"expected a token at character {at}, found {text[at : at + 20]!r}")
            kind, image, at = found.lastgroup, found[0], found.end()
            if kind == "NAME":
                kind = self.keywords.get(image.upper(), kind) if len(image) <= _LONGEST_KEYWORD else kind
            elif kind == "SIGN":
                kind = _SIGNS[image]
            if kind != "SKIP":
                yield Token(kind, image)


class TextSelectorTokens(SelectorTokens):
    """The tokenizer of a version with TEXT_OPERATORS."""

    keywords = _TEXT_KEYWORDS


def _text_of(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


def _next_string(strings: list[str], literal: Token) -> list[str]:
    strings.append(_text_of(literal))
    return strings


# what the broker's parser does at the end of each grammar rule
_ACTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: getattr(e, name) for name in ("create_and", "create_or", "create_equal", "create_not_equal", "create_between")},
    **{name: getattr(e, name) for name in ("create_is_null", "create_is_not_null", "create_not_between", "decimal", "floating_point")},
    "selector": e.as_boolean,
    "create_order": lambda left, symbol, right: e.create_order(str(symbol), left, right),
    "create_in": partial(e.create_in, negated=False),
    "create_not_in": partial(e.create_in, negated=True),
    "create_part": lambda operand, word, literal: e.create_part(operand, word.upper(), _text_of(literal), negated=False),
    "create_not_part": lambda operand, word, literal: e.create_part(operand, word.upper(), _text_of(literal), negated=True),
    "first_string": lambda literal: [_text_of(literal)],
    "next_string": _next_string,
    "plus": lambda operand: e.nested(operand, e.SIGN_COST),
    "create_negate": lambda operand: e.nested(e.create_negate(operand), e.SIGN_COST),
    "create_not": lambda operand: e.nested(e.create_not(operand), e.SIGN_COST),
    "bracket": lambda operand: e.nested(operand, e.BRACKET_COST),
    "string": lambda literal: e.constant(_text_of(literal)),
    "variable": lambda name: e.variable(str(name)),
    "true": lambda: e.constant(True),
    "false": lambda: e.constant(False),
    "null": lambda: e.constant(None),
}


class _Broker(Transformer[Token, Any]):
    def __default__(self, data: str, children: list[Any], meta: Any) -> Any:
        return _ACTIONS[data](*children)


@cache
def _selector_parser(*, text_operators: bool) -> Lark:
    lexer = TextSelectorTokens if text_operators else SelectorTokens
    return Lark(_SELECTOR, start="selector", parser="lalr", lexer=lexer, transformer=_Broker())


def parse(text: str, *, text_operators: bool = False) -> Operand:
    """Return the operand of a whole expression, as SelectorParser.parse compiles it; its `static` is None.

    `text_operators` is the value of TEXT_OPERATORS in the broker's version.

    Raises:
        Sql92Error: the broker does not compile the expression, or it is longer than `MAX_LENGTH`.
    """
    if len(text) > MAX_LENGTH:
        raise Sql92Error(f"expected at most {MAX_LENGTH} characters, found {len(text)}")
    parsing = _selector_parser(text_operators=text_operators).parse_interactive(text)
    try:
        for _ in parsing.iter_parse():
            pass
    except UnexpectedToken as stop:
        last = stop.token
    else:
        last = None
    try:
        operand: Operand = parsing.feed_eof()
    except UnexpectedToken as error:
        found = "the end" if last is None else repr(str(last)[:40])
        raise Sql92Error(f"expected another token, found {found}") from error
    return operand
