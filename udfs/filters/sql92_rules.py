"""The rule of SQL92 filters that differs between versions of the broker."""

from __future__ import annotations

from typing import Final

from store_format.broker_version import BrokerVersion, Rule, Variant

TEXT_OPERATORS: Final = Rule(
    term="CONTAINS, STARTSWITH, ENDSWITH",
    variants=(
        Variant(
            since=BrokerVersion.V4_9_3,
            value=False,
            meaning="the words are names, so `a CONTAINS 'x'` compiles as `a`",
            source="SelectorParser.jj",
        ),
        Variant(
            since=BrokerVersion.V5_5_0,
            value=True,
            meaning="the words are operators between an operand and a text; what is no text, and an empty text, give false, also after NOT",
            source="SelectorParser.jj, ComparisonExpression.createContains, createStartsWith, createEndsWith",
        ),
    ),
)
