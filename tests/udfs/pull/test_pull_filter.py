"""Verdicts on many entries are those that the filter of one message and one unit gives for each."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_format.queue import entry_properties as ep
from store_format.queue.packed_ext_units import NO_UNIT, UNDERFLOW, UNIT, UnitColumns
from store_format.record.message import decode_properties
from store_format.record.record_columns import Slices
from tests.makers.sql92_expressions import ExpressionMaker
from tests.runs.sampling import examples
from udfs.filters import message_filter as mf
from udfs.filters.bloom_filter import BitsArray, BloomFilter
from udfs.filters.consumer_filter_manager import ConsumerFilterManager
from udfs.filters.tags import tags_code
from udfs.pull import get_message as gm
from udfs.pull.pull_filter import FilterRules, PullFilter, PullFilterError, entry_verdicts, tag_codes, with_units

BLOOM = BloomFilter.create_by_fn(20, 32)
BORN = 1000


def rules(*, support_retry: bool = False) -> FilterRules:
    manager = ConsumerFilterManager(BLOOM)
    for topic, expression in (("T", "a = 1"), ("U", "a > 1"), ("%RETRY%G", "a = 3")):
        manager.register(topic, "G", expression, "SQL92", 1, BORN)
    return FilterRules(manager=manager, support_retry=support_retry)


def asked(kind: str, expression: str | None, by: str | None = None) -> PullFilter:
    return PullFilter(expression_type=kind, expression=expression, registered_by=by)


PROPERTIES = st.lists(
    st.sampled_from(
        [b"a\x011", b"a\x012", b"a\x01x", b"a\x01", b"a", b"b\x011", b"RETRY_TOPIC\x01T", b"RETRY_TOPIC\x01U", b"RETRY_TOPIC\x01V"]
    ),
    max_size=3,
).map(b"\x02".join)
ENTRIES = st.lists(PROPERTIES | st.sampled_from([ep.NOT_THERE, ep.INDEX_OUT_OF_BOUNDS, ep.BUFFER_UNDERFLOW]))
EXPRESSIONS = ["a = 1", "a > 1", "a IS NULL", "b = 1 OR a = 2", "a"]


def one_verdict(wanted: mf.ExpressionMessageFilter, entry: bytes | int) -> int | None:
    """The broker's verdict on one message; None if the broker never reads the message."""
    if isinstance(entry, int):
        return {ep.INDEX_OUT_OF_BOUNDS: -gm.INDEX_OUT_OF_BOUNDS, ep.BUFFER_UNDERFLOW: -gm.BUFFER_UNDERFLOW}.get(entry)
    try:
        found = wanted.is_matched_by_commit_log(decode_properties(entry) if entry else None)
    except mf.RetryTopicMissingError:
        return -gm.NULL_POINTER
    return gm.MATCHES if found else gm.NOT_BY_COMMIT_LOG


@given(ENTRIES, st.sampled_from(EXPRESSIONS), st.sampled_from(["T", "%RETRY%G", "%RETRY%H"]), st.booleans(), st.booleans())
def test_verdicts_on_many_messages_are_those_on_each(
    entries: list[bytes | int], expression: str, topic: str, support_retry: bool, by_tag: bool
) -> None:
    used = rules(support_retry=support_retry)
    wanted = used.message_filter(topic, asked("TAG", "TagA") if by_tag else asked("SQL92", expression))
    condition = wanted.commit_log_condition()
    expected = [one_verdict(wanted, entry) for entry in entries]
    if condition is None:
        assert by_tag
        assert set(expected) <= {gm.MATCHES, None, -gm.INDEX_OUT_OF_BOUNDS, -gm.BUFFER_UNDERFLOW}  # nothing is decoded
        return
    lengths = np.array([one if isinstance(one, int) else len(one) for one in entries], np.int32)
    raw = np.frombuffer(b"".join(one for one in entries if isinstance(one, bytes)), np.uint8)
    found = used.verdicts(topic, condition, lengths, raw).tolist()
    assert [verdict for verdict, one in zip(found, expected, strict=True) if one is not None] == [
        one for one in expected if one is not None
    ]


def verdicts(wanted: PullFilter, entries: list[bytes | int], *, text_operators: bool = False) -> tuple[list[int], list[int | None]]:
    """The verdicts on all entries together, and on each by itself."""
    manager = ConsumerFilterManager(BLOOM, text_operators=text_operators)
    used = FilterRules(manager=manager, support_retry=False)
    one = used.message_filter("T", wanted)
    condition = one.commit_log_condition()
    if condition is None:
        return [], []
    lengths = np.array([entry if isinstance(entry, int) else len(entry) for entry in entries], np.int32)
    raw = np.frombuffer(b"".join(entry for entry in entries if isinstance(entry, bytes)), np.uint8)
    return used.verdicts("T", condition, lengths, raw).tolist(), [one_verdict(one, entry) for entry in entries]


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=examples(100))
def test_no_expression_and_no_property_is_too_odd_to_be_judged(seed: int, text_operators: bool) -> None:
    case = ExpressionMaker(seed).case()
    stored = ["\x02".join(f"{name}\x01{value}" for name, value in one.items()).encode() for one in case["properties"]]
    damaged = [one[: seed % (len(one) + 1)] + b"\xff\x01\x02\x01" + one[seed % 7 :] for one in stored]
    wanted = asked("SQL92", case["expression"]) if case["expression"] else asked("TAG", "TagA")
    together, alone = verdicts(wanted, [*stored, *damaged, b""], text_operators=text_operators)
    assert together == alone


# hostile on purpose: an expression, the properties of each of 100 messages, and whether they match
COSTLY = {
    "a part that is nearly everywhere": ("a CONTAINS '" + "a" * 16_000 + "b'", b"a\x01" + b"a" * 32_000, False),
    "a part that is there at last": ("a CONTAINS '" + "a" * 16_000 + "b'", b"a\x01" + b"a" * 31_000 + b"b", True),
    "numbers that only Java's parser knows": (" AND ".join(["a < 1.5"] * 5000), b"a\x01-Infinity", True),
    "an exponent without end": ("a > 1.5", b"a\x011e" + b"9" * 32_000, True),
    "many properties": ("zz = 1 OR a7 = 'x'", b"\x02".join(b"a%d\x01x" % number for number in range(3500)), True),
    "many values": ("a IN (" + ",".join(f"'{number}'" for number in range(100_000)) + ")", b"a\x0199999", True),
    "many brackets": ("(" * 800 + " OR ".join(["(a = 1 AND b > 2.5)"] * 1500) + ")" * 800, b"a\x011\x02b\x01NaN", True),
}


@pytest.mark.parametrize(("expression", "stored", "matches"), COSTLY.values(), ids=COSTLY)
def test_costly_expressions_are_judged_in_time(expression: str, stored: bytes, matches: bool) -> None:
    verdicts(asked("SQL92", "a > 1.5 OR a CONTAINS 'x' OR a IN ('x')"), [b"a\x01-1"], text_operators=True)  # compiles the kernels
    manager = ConsumerFilterManager(BLOOM, text_operators=True)
    used = FilterRules(manager=manager, support_retry=False)
    began = time.process_time()
    condition = used.message_filter("T", asked("SQL92", expression)).commit_log_condition()
    assert condition is not None
    found = used.verdicts("T", condition, np.full(100, len(stored), np.int32), np.frombuffer(stored * 100, np.uint8))
    assert set(found.tolist()) == {gm.MATCHES if matches else gm.NOT_BY_COMMIT_LOG}
    # where the part is searched at each place, CONTAINS takes 16 s
    assert time.process_time() - began < 8


ASKED_OF_MESSAGES = [
    (asked("SQL92", "a = 1"), "a = 1"),
    (asked("SQL92", "a ="), None),  # what does not compile gives every message
    (asked("SQL92", "x = 9", "G"), "a = 1"),  # the registered one counts
    (asked("TAG", "TagA"), None),
    (asked("TAG", None), None),
    (asked("", "TagA"), None),
    (asked("tag", "TagA"), None),
]


@pytest.mark.parametrize(("wanted", "expression"), ASKED_OF_MESSAGES)
def test_what_is_asked_of_messages(wanted: PullFilter, expression: str | None) -> None:
    condition = rules().message_filter("T", wanted).commit_log_condition()
    assert (condition and condition.expression) == expression


@pytest.mark.parametrize("wanted", [asked("TAG", "TagA"), asked("SQL92", "a = 7"), asked("SQL92", "a ="), asked("SQL92", "", "G")])
def test_of_a_retry_topic_only_what_was_registered_counts(wanted: PullFilter) -> None:
    if wanted.expression:
        assert rules(support_retry=True).message_filter("%RETRY%G", wanted).commit_log_condition() == mf.Condition(expression=None)
    else:
        with pytest.raises(PullFilterError):
            rules(support_retry=True).message_filter("%RETRY%G", wanted)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (asked("TAG", "||"), "SUBSCRIPTION_PARSE_FAILED"),
        (asked("SQL92", None), "SUBSCRIPTION_PARSE_FAILED"),
        (asked("SQL92", ""), "SUBSCRIPTION_PARSE_FAILED"),
        (asked("", None), "SUBSCRIPTION_PARSE_FAILED"),
        (asked("SQL92", "a = 1", "nobody"), "FILTER_DATA_NOT_EXIST"),
    ],
)
def test_a_filter_that_the_broker_refuses_has_its_code(wanted: PullFilter, code: str) -> None:
    with pytest.raises(PullFilterError) as raised:
        rules().message_filter("T", wanted)
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("wanted", "codes"),
    [
        (asked("TAG", "TagB||TagA"), sorted([tags_code("TagA"), tags_code("TagB")])),
        (asked("TAG", "*"), None),
        (asked("TAG", " || "), []),
        (asked("", "TagA"), []),
        (asked("", "*"), None),
        (asked("SQL92", "a = 1"), None),
        (asked("tag", "TagA"), None),
    ],
)
def test_tags_that_pass(wanted: PullFilter, codes: list[int] | None) -> None:
    found = tag_codes(rules().message_filter("T", wanted))
    assert (None if found is None else found.tolist()) == codes


def own_bits() -> bytes:
    bits = BitsArray(BLOOM.m)
    BLOOM.hash_to(BLOOM.calc_bit_positions("G#T"), bits)
    return bytes(bits)


def units(*rows: tuple[int, int, int, bytes]) -> UnitColumns:
    states, codes, times, maps = zip(*rows, strict=True)
    lengths = np.array([len(one) for one in maps], np.int64)
    return UnitColumns(
        states=np.array(states, np.int8),
        tags_codes=np.array(codes, np.int64),
        msg_store_times=np.array(times, np.int64),
        buffer=np.frombuffer(b"".join(maps), np.uint8),
        bit_maps=Slices(np.cumsum(lengths) - lengths, lengths),
    )


NO_BITS = bytes(BLOOM.m // 8)
FIVE = units(
    (UNIT, 7, BORN + 1, own_bits()), (UNIT, 7, BORN + 1, NO_BITS), (UNDERFLOW, 0, 0, b""), (NO_UNIT, 0, 0, b""), (UNIT, 7, BORN, NO_BITS)
)


def test_a_unit_that_cannot_be_read_comes_before_bits_and_bits_before_the_message() -> None:
    by_log = np.array([gm.NOT_BY_COMMIT_LOG, gm.MATCHES, gm.MATCHES, -gm.NULL_POINTER, gm.MATCHES], np.uint8)
    registered = rules().message_filter("T", asked("SQL92", "a = 1", "G"))
    brought = rules().message_filter("T", asked("SQL92", "a = 1"))
    throws, bits, log = gm.UNIT_UNDERFLOWS, gm.NOT_BY_CONSUME_QUEUE, gm.NOT_BY_COMMIT_LOG
    assert entry_verdicts(registered, FIVE, by_log).tolist() == [log, bits, throws, -gm.NULL_POINTER, 0]
    assert entry_verdicts(brought, FIVE, by_log).tolist() == [log, 0, throws, -gm.NULL_POINTER, 0]
    assert entry_verdicts(None, FIVE, None).tolist() == [0, 0, throws, 0, 0]
    assert entry_verdicts(brought, None, by_log).tolist() == by_log.tolist()
    assert entry_verdicts(None, None, None).tolist() == []


def test_the_code_of_a_unit_counts_as_an_int() -> None:
    found = with_units(
        np.array([-(2**63), -(2**63) + 40, 5], np.int64), units((UNIT, -(2**40) + 9, 0, b""), (NO_UNIT, 0, 0, b""), (NO_UNIT, 0, 0, b""))
    )
    assert found.tolist() == [9, -(2**63) + 40, 5]
