"""The rule of SQL92 filters that differs between versions of the broker."""

from __future__ import annotations

from typing import Final

from store_format.broker_version import BrokerVersion, Rule, Variant

TEXT_OPERATORS: Final = Rule(
    term="CONTAINS, STARTSWITH, ENDSWITH",
    variants=(
        Variant(BrokerVersion.V4_9_3, False, "these words are names, so `a CONTAINS 'x'` compiles as `a`", "SelectorParser.jj"),
        Variant(
            BrokerVersion.V5_5_0,
            True,
            (
                "these words are operators between an operand and a text; an operand that is no text, and an empty text, "
                "give false, also after NOT"
            ),
            "SelectorParser.jj, ComparisonExpression.createContains, createStartsWith, createEndsWith",
        ),
    ),
)
