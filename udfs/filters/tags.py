"""Tags: their hash codes, and which entries a TAG subscription matches.

Broker source (4.9.3): MessageExtBrokerInner.tagsString2tagsCode, FilterAPI.buildSubscriptionData,
ExpressionMessageFilter.isMatchedByConsumeQueue. java.lang.String: hashCode, split, trim.
Rule: the broker compares hash codes only, as ints, so "Aa" gets the messages of "BB" too (the client drops them).
Surprises: the hash is over UTF-16 units. trim() removes the characters up to U+0020 and no other blanks, so a
no-break space belongs to the tag. " || " is a subscription to nothing, "||" is an error, "* " is the tag "*". An entry
whose ext unit cannot be read has no tagsCode and matches every subscription.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.compiled import bare
from store_format.java.numbers import to_int
from store_format.java.string_hash import string_hash
from udfs.sql_definition import SqlFunction

SUB_ALL: Final = "*"
_SEPARATOR: Final = "||"
_TRIMMED: Final = "".join(map(chr, range(0x21)))  # the characters that String.trim removes


class SubscriptionParseError(ValueError):
    """A TAG subscription that the broker refuses with SUBSCRIPTION_PARSE_FAILED."""

    def __init__(self, subscription: str) -> None:
        super().__init__(subscription)
        self.subscription = subscription

    def __str__(self) -> str:
        return (
            f"subscription {self.subscription!r}: expected tags separated by {_SEPARATOR}, found separators only; "
            f"{SUB_ALL!r} subscribes to everything"
        )


def tags_code(tag: str | None) -> int:
    """Return the tagsCode of a message with a tag: the tag's String.hashCode, from -2**31 to 2**31 - 1; 0 without a tag."""
    return string_hash(tag or "")


def parse_subscription(subscription: str | None) -> frozenset[int] | None:
    """Return the hash codes of a TAG subscription's tags; None if it matches every message (None, "" and "*").

    Raises:
        SubscriptionParseError: the subscription has separators only, which String.split turns into no part.
    """
    tags = split_tags(subscription)
    return None if tags is None else frozenset(map(tags_code, tags))


def split_tags(subscription: str | None) -> list[str] | None:
    """Return the tags of a TAG subscription; None if it matches every message.

    Raises:
        SubscriptionParseError: as `parse_subscription` does.
    """
    if subscription is None or subscription in ("", SUB_ALL):
        return None
    parts = subscription.split(_SEPARATOR)
    if not any(parts):
        raise SubscriptionParseError(subscription)
    trimmed = (part.strip(_TRIMMED) for part in parts)
    return [tag for tag in trimmed if tag]


def tag_matches(codes: frozenset[int] | None, code: int | None) -> bool:
    """Return whether an entry matches the hash codes of a subscription's tags, from `parse_subscription`.

    `code` is the entry's tagsCode (64 bits, of which the low 32 count); None if its ext unit cannot be read.
    """
    return codes is None or code is None or to_int(code) in codes


def code_array(codes: Collection[int]) -> NDArray[np.int32]:
    """Return hash codes in the form that `contains_code` takes: ascending int32."""
    return np.sort(np.fromiter(codes, np.int32, len(codes)))


@bare
def contains_code(codes: NDArray[np.int32], code: int) -> bool:
    """Return whether an entry's tagsCode is among a subscription's codes, an array from `code_array`."""
    wanted = to_int(code)
    low, high = 0, len(codes)
    while low < high:
        middle = (low + high) >> 1
        if codes[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return bool(low < len(codes) and codes[low] == wanted)


def _hash_sql(text: str) -> str:
    """Return SQL for the hash code of `text`, a SQL string: from 0 to 2**32 - 1. Four hex digits are one UTF-16 unit."""
    return (
        f"aggregate(regexp_extract_all(hex(encode({text}, 'UTF-16BE')), '....', 0), 0L, "
        "(hash, unit) -> (hash * 31 + CAST(conv(unit, 16, 10) AS BIGINT)) & 4294967295)"
    )


_TAG_SQL: Final = "coalesce(tag, '')"
_TRIMMED_SQL: Final = f"decode(X'{_TRIMMED.encode().hex()}', 'UTF-8')"

SQL_FUNCTIONS: Final = (
    SqlFunction(
        name="tags_code",
        parameters="tag STRING",
        returns="BIGINT",
        body=f"({_hash_sql(_TAG_SQL)} ^ 2147483648) - 2147483648",
        comment="Hash code that the broker stores for a tag. 0 if the tag is NULL or empty",
    ),
    SqlFunction(
        name="tag_matches",
        parameters="subscription STRING, tagsCode BIGINT",
        returns="BOOLEAN",
        body=f"""CASE
  WHEN subscription IS NULL OR subscription IN ('', '{SUB_ALL}') THEN TRUE
  WHEN replace(subscription, '{_SEPARATOR}', '') = '' THEN NULL
  WHEN tagsCode IS NULL THEN TRUE
  ELSE exists(
    transform(split(subscription, '[|][|]'), part -> trim(BOTH {_TRIMMED_SQL} FROM part)),
    tag -> tag <> '' AND {_hash_sql("tag")} = tagsCode & 4294967295)
END""",
        comment=(
            "Whether a TAG subscription matches an entry with this tagsCode. NULL if the subscription does not parse, "
            "else TRUE if an argument is NULL"
        ),
    ),
)
