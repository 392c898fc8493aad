"""Frames from the segments of a connection: whatever happens to the segments on their way, the frames are those that were sent."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.capture.capture_job import _schema
from pipeline.capture.connection import Connection
from pipeline.capture.exchanges import BAD, OFFSET, PULL, Row
from pipeline.capture.packets import Packet
from pipeline.capture.reassembly import ACKED_MICROS, CapturedPacket, Reassembly, StreamPiece
from pipeline.capture.segments import PackedSegments, pack_segments
from pipeline.capture.stream_frames import BadStretch, Frames, FrameStream
from pipeline.schema.arrow_types import arrow_of
from store_format.remoting import frame_columns
from store_format.remoting.command import RemotingCommand, SerializeType
from store_format.remoting.errors import FrameError
from store_format.remoting.frame import decode_header, encode_frame
from store_format.remoting.frame_search import find_frame
from tests.makers.captured_connections import answer, pull
from tests.makers.captures import ACK, CLIENT, FIN, SERVER, START, SYN, Sent
from tests.runs.sampling import examples

DIGEST = "d" * 64
ISNS = [0, 12345, 2**32 - 100, 2**31 - 7]


def segmented(stream: bytes, cuts: list[int], *, isn: int = 0, from_client: bool = True) -> list[Sent]:
    """A stream as segments; its first byte follows a SYN with the number `isn`."""
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [Sent(from_client, isn + 1 + start, stream[start:end]) for start, end in pairwise(places)]


def reassembled(sent: list[Sent], isn: int | None) -> tuple[bytes, list[StreamPiece]]:
    stream = Reassembly()
    if isn is not None:
        stream.syn(isn)
    pieces: list[StreamPiece] = []
    for number, one in enumerate(sent):
        pieces += stream.add(one.seq % 2**32, one.payload, len(one.payload), CapturedPacket(number, number, START + number))
    pieces += stream.end()
    return b"".join(bytes(piece.data) for piece in pieces), pieces


@given(
    st.binary(min_size=1, max_size=300),
    st.lists(st.integers(0, 300), max_size=12),
    st.sampled_from(ISNS),
    st.randoms(use_true_random=False),
)
def test_bytes_come_once_and_in_order_however_segments_are_cut_doubled_and_shuffled(
    stream: bytes, cuts: list[int], isn: int, chance: random.Random
) -> None:
    sent = segmented(stream, cuts, isn=isn)
    for _ in range(chance.randrange(6)):  # sent again, in other pieces
        start = chance.randrange(len(stream))
        end = chance.randrange(start, len(stream)) + 1
        sent.append(Sent(True, isn + 1 + start, stream[start:end]))
    chance.shuffle(sent)
    found, pieces = reassembled(sent, isn)
    assert found == stream
    assert not any(piece.lost for piece in pieces)
    # nothing is there before the packet that brought it, and a stretch counts as read with the last packet that it waited for
    arrived: set[int] = set()
    done = 0
    expected = []
    for number, one in enumerate(sent):
        start = (one.seq - isn - 1) % 2**32
        arrived |= set(range(start, start + len(one.payload)))
        before = done
        while done in arrived:
            done += 1
        expected += [number] * (done - before)
    assert [piece.packet.number for piece in pieces for _ in range(len(piece.data))] == expected


@given(st.binary(min_size=1, max_size=300), st.lists(st.integers(0, 300), min_size=1, max_size=12), st.sampled_from(ISNS), st.data())
def test_lost_bytes_are_told_where_and_how_many_they_are(stream: bytes, cuts: list[int], isn: int, data: st.DataObject) -> None:
    sent = segmented(stream, cuts, isn=isn)
    kept = [one for one in sent if data.draw(st.booleans())]
    _, pieces = reassembled(kept, isn)
    at = 0
    for piece in pieces:
        assert piece.offset == at
        assert bytes(piece.data) == stream[at : at + len(piece.data)]
        at += len(piece.data) + piece.lost
    there = sum(len(one.payload) for one in kept)
    assert sum(len(piece.data) for piece in pieces) == there
    last = max(((one.seq - isn - 1) % 2**32 + len(one.payload) for one in kept), default=0)
    assert at == last


def test_a_hole_is_given_up_a_second_after_the_receiver_acknowledged_what_is_behind_it() -> None:
    stream = Reassembly()
    stream.syn(0)
    assert stream.add(11, b"later", 5, CapturedPacket(1, 1, START)) == []
    assert stream.acked(1, START) == []  # the bytes before the segment may still come
    assert stream.acked(16, START + 1) == []
    assert stream.acked(16, START + ACKED_MICROS) == []
    hole, later = stream.acked(16, START + 1 + ACKED_MICROS)
    assert (hole.offset, hole.lost, later.offset, bytes(later.data)) == (0, 10, 10, b"later")
    assert later.packet == CapturedPacket(1, 1, START)  # it was there all the time


def test_an_acknowledgement_below_the_hole_gives_nothing_up() -> None:
    stream = Reassembly()
    stream.syn(0)
    stream.add(11, b"later", 5, CapturedPacket(1, 1, START))
    for micros in range(START, START + 10 * ACKED_MICROS, ACKED_MICROS):
        assert stream.acked(1, micros) == []
    assert [bytes(one.data) for one in stream.add(1, b"0123456789", 10, CapturedPacket(2, 2, START))] == [b"0123456789", b"later"]


def test_what_the_snap_length_cut_off_is_lost_at_once() -> None:
    stream = Reassembly()
    stream.syn(0)
    first = stream.add(1, b"abc", 10, CapturedPacket(1, 1, START))
    second = stream.add(11, b"def", 3, CapturedPacket(2, 2, START))
    assert [(one.offset, bytes(one.data), one.lost) for one in first + second] == [(0, b"abc", 0), (3, b"", 7), (10, b"def", 0)]


ROCKETMQ = SerializeType.ROCKETMQ
FRAMES = [pull(7), pull(8, kind=ROCKETMQ), answer(7, b"x" * 300), answer(8, b"{}" * 90, kind=ROCKETMQ), pull(9, subscription="甲 || 乙")]
streams = st.lists(st.sampled_from(FRAMES), min_size=1, max_size=8)


def fed(stream: FrameStream, pieces: list[StreamPiece]) -> tuple[list[tuple[int, int, int]], list[BadStretch]]:
    """(offset, length, packet) of the frames, and the bad stretches."""
    frames, bad = [], []
    for piece in pieces:
        for found in stream.feed([piece]):
            if isinstance(found, Frames):
                lengths = found.columns.lengths[: found.count].tolist()
                numbers = [packet.number for packet in found.packets]
                frames += list(zip(found.offsets.tolist(), lengths, numbers, strict=True))
                assert not found.columns.errors
            else:
                bad.append(found)
    bad += stream.end()
    return frames, bad


@given(streams, st.lists(st.integers(0, 3000), max_size=20))
def test_frames_are_found_however_they_are_cut_each_with_the_packet_that_completes_it(frames: list[bytes], cuts: list[int]) -> None:
    raw = b"".join(frames)
    _, pieces = reassembled(segmented(raw, cuts), 0)
    found, bad = fed(FrameStream(), pieces)
    ends = np.cumsum([len(frame) for frame in frames]).tolist()
    packets = np.searchsorted([piece.offset + len(piece.data) for piece in pieces], ends).tolist()
    assert found == [(end - len(frame), len(frame), packet) for frame, end, packet in zip(frames, ends, packets, strict=True)]
    assert bad == []


@settings(max_examples=examples(80))
@given(streams, st.integers(0, 2**30), st.integers(1, 400))
def test_a_hole_costs_the_frames_that_it_touches_and_no_other(frames: list[bytes], where: int, length: int) -> None:
    raw = b"".join(frames)
    start = where % len(raw)
    end = min(start + length, len(raw))
    pieces = [StreamPiece(0, raw[:start], 0, CapturedPacket(0, 0, START))] if start else []
    pieces += [StreamPiece(start, b"", end - start, CapturedPacket(1, 1, START))]
    pieces += [StreamPiece(end, raw[end:], 0, CapturedPacket(1, 1, START))] if end < len(raw) else []
    stream = FrameStream()
    found: list[tuple[int, int]] = []
    damaged: dict[int, bool] = {}
    bad: list[BadStretch] = []
    for piece in pieces:
        for one in stream.feed([piece]):
            if isinstance(one, BadStretch):
                bad.append(one)
                continue
            rows = list(zip(one.offsets.tolist(), one.columns.lengths[: one.count].tolist(), strict=True))
            found += [place for row, place in enumerate(rows) if row not in one.damaged]
            damaged |= {rows[row][0]: header for row, header in one.damaged.items()}
    bad += stream.end()
    ends = np.cumsum([len(frame) for frame in frames]).tolist()
    places = [(stop - len(frame), len(frame)) for frame, stop in zip(frames, ends, strict=True)]
    assert found == [(at, size) for at, size in places if at + size <= start or at >= end]
    (at, size) = next((at, size) for at, size in places if at <= start < at + size)
    known = at + 4 <= start  # where the frame ends, from its length
    header_end = at + 8 + int.from_bytes(raw[at + 5 : at + 8], "big")
    assert damaged == ({at: start >= header_end} if known else {})
    assert len(bad) == (1 + (end > at + size) if known else 1)
    assert bad[0].offset <= start


@given(streams, st.integers(0, 2**30))
def test_a_connection_that_was_there_before_is_read_from_the_first_whole_frame_on(frames: list[bytes], where: int) -> None:
    raw = b"".join(frames)
    start = where % len(raw)
    found, bad = fed(FrameStream(searching=True), [StreamPiece(0, raw[start:], 0, CapturedPacket(0, 0, START))])
    starts = np.cumsum([0, *(len(frame) for frame in frames)]).tolist()
    assert [offset + start for offset, _, _ in found] == [one for one in starts[:-1] if one >= start]
    assert len(bad) == (start not in starts)


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n" * 40, bytes(5000), b"\x16\x03\x01" + bytes(range(256)) * 9, b"\xff" * 3000])
def test_a_stream_of_something_else_is_one_bad_stretch(junk: bytes) -> None:
    for searching in (False, True):
        frames, bad = fed(FrameStream(searching=searching), [StreamPiece(0, junk, 0, CapturedPacket(0, 0, START))])
        assert (frames, len(bad), bad[0].offset) == ([], 1, 0)


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_is_no_frame_is_not_read_as_frames(monkeypatch: pytest.MonkeyPatch, is_lost: bool) -> None:
    """Four zeros look like an empty frame, which takes longer to refuse than a pull takes to read."""
    read = [0]

    def counted(content: memoryview) -> tuple[RemotingCommand, int]:
        read[0] += 1
        return decode_header(content)

    monkeypatch.setattr(frame_columns, "decode_header", counted)
    before, after = pull(0), pull(1)
    gap, packet = 1 << 18, CapturedPacket(0, 0, START)
    between = StreamPiece(len(before), b"" if is_lost else bytes(gap), gap if is_lost else 0, packet)
    pieces = [StreamPiece(0, before, 0, packet), between, StreamPiece(len(before) + gap, after, 0, packet)]
    frames, bad = fed(FrameStream(), pieces)
    assert [place for place, _, _ in frames] == [0, len(before) + gap]
    assert len(bad) == 1
    assert read[0] < 100


def test_a_stream_of_junk_is_not_kept() -> None:
    stream = FrameStream(searching=True)
    chance = random.Random(5)
    for number in range(300):
        list(stream.feed([StreamPiece(number * 10_000, chance.randbytes(10_000), 0, CapturedPacket(number, 0, START))]))
        assert len(stream._held) < 90_000
        assert len(stream._packets) < 10


def test_a_frame_that_the_broker_refuses_is_bad_and_the_next_is_read() -> None:
    refused = bytearray(pull(5))
    refused[4] = 9  # no such serialize type
    stream = pull(1) + bytes(refused) + pull(2)
    rows = connected([*segmented(stream, [])])
    assert [row["opaque"] for kind, row in rows if kind == PULL] == [1, 2]
    (bad,) = [row for kind, row in rows if kind == BAD]
    assert "serialize type" in bad["error"]
    assert f"byte {len(pull(1))}" in bad["error"]


def packed(sent: list[Sent]) -> list[PackedSegments]:
    packets = [Packet(number, 24 + number, START + number, 1, one.packet()) for number, one in enumerate(sent)]
    return [one for one in pack_segments(packets) if isinstance(one, PackedSegments)]


def connected(sent: list[Sent], *, handshake: bool = True) -> list[tuple[str, Row]]:
    hands = [Sent(True, 0, flags=SYN), Sent(False, 0, flags=SYN | ACK)] if handshake else []
    rows: list[tuple[str, Row]] = []
    connection = None
    for one in packed([*hands, *sent]):
        connection = connection or Connection(one.connection, DIGEST)
        rows += connection.feed(one)
    assert connection is not None
    return rows + list(connection.end())


def pulls(rows: list[tuple[str, Row]]) -> list[Row]:
    assert [row for kind, row in rows if kind == BAD] == []
    return [row for kind, row in rows if kind == PULL]


def test_answers_find_their_requests_by_opaque_and_not_by_order() -> None:
    asked = b"".join(pull(opaque) for opaque in (1, 2, 3))
    told = answer(3, b"three") + answer(1, b"one")
    rows = pulls(connected([Sent(True, 1, asked), Sent(False, 1, told)]))
    assert {row["opaque"]: row.get("recordedBodyLength") for row in rows} == {1: 3, 2: None, 3: 5}
    assert [row["sequence"] >> 20 for row in rows] == [2, 2, 2]
    assert len({row["sequence"] for row in rows}) == 3


def test_a_lite_pull_of_a_client_of_5_x_is_a_pull_unless_its_broker_does_not_know_the_code() -> None:
    lite: dict[str, Any] = {"sysFlag": "19", "commitOffset": "7", "maxMsgBytes": "262144", "bname": "b"}
    asked = b"".join(pull(opaque, code=361, **lite) for opaque in (1, 2, 3))
    told = answer(1, b"one") + answer(3, code=3)  # 3: REQUEST_CODE_NOT_SUPPORTED
    rows = connected([Sent(True, 1, asked), Sent(False, 1, told)])
    found = {row["opaque"]: (row["sysFlag"], row.get("recordedCode"), row.get("recordedBodyLength")) for row in pulls(rows)}
    assert found == {1: (19, 0, 3), 2: (19, None, None)}
    assert [row["consumerOffset"] for kind, row in rows if kind == OFFSET] == [7, 7]


def test_a_request_of_the_broker_with_the_same_opaque_is_another_one() -> None:
    notify = encode_frame(RemotingCommand(code=40, flag=2, opaque=1, ext_fields={"consumerGroup": "g"}))
    (row,) = pulls(connected([Sent(True, 1, pull(1)), Sent(False, 1, notify + answer(1, code=20))]))
    assert row["recordedCode"] == 20


def test_the_same_ends_may_connect_again() -> None:
    first = [Sent(True, 1, pull(1)), Sent(True, 1 + len(pull(1)), flags=FIN | ACK)]
    second = [Sent(True, 900, flags=SYN), Sent(False, 800, flags=SYN | ACK), Sent(True, 901, pull(1)), Sent(False, 801, answer(1))]
    one, two = pulls(connected(first + second))
    assert (one.get("recordedCode"), two["recordedCode"]) == (None, 0)
    assert one["connection"] != two["connection"]
    assert one["requestId"] != two["requestId"]


def test_a_syn_that_is_sent_again_changes_nothing() -> None:
    again = [Sent(True, 0, flags=SYN), Sent(False, 0, flags=SYN | ACK)]
    (row,) = pulls(connected([*again, Sent(True, 1, pull(1)), *again, Sent(False, 1, answer(1))]))
    assert row["recordedCode"] == 0


def test_an_answer_that_was_captured_before_its_request_is_found() -> None:
    sent = [Sent(True, 1 + len(pull(1)), pull(2)), Sent(False, 1, answer(1, b"late")), Sent(True, 1, pull(1))]
    rows = pulls(connected(sent))
    assert {row["opaque"]: row.get("recordedCode") for row in rows} == {1: 0, 2: None}


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 400)), min_size=1, max_size=10),
    st.lists(st.integers(0, 9000), max_size=40),
    st.sampled_from(ISNS),
    st.randoms(use_true_random=False),
)
def test_a_conversation_is_the_same_however_its_segments_travel(
    said: list[tuple[int, int]], cuts: list[int], isn: int, chance: random.Random
) -> None:
    kinds = [SerializeType(head) for head, _ in said]
    asked = b"".join(pull(opaque, kind=kind) for opaque, kind in enumerate(kinds))
    told = b"".join(answer(opaque, bytes(said[opaque][1]), kind=kind) for opaque, kind in reversed(list(enumerate(kinds))))
    there, back = segmented(asked, cuts, isn=isn), segmented(told, cuts, isn=isn, from_client=False)
    for segments in (there, back):
        segments.extend(chance.sample(segments, chance.randrange(len(segments) + 1)))
        chance.shuffle(segments)
    hands = [Sent(True, isn, flags=SYN), Sent(False, isn, flags=SYN | ACK)]
    rows = pulls(connected([*hands, *there, *back], handshake=False))
    assert sorted((row["opaque"], row["recordedBodyLength"]) for row in rows) == [(n, size) for n, (_, size) in enumerate(said)]


@given(st.binary(max_size=300), st.binary(max_size=60))
def test_no_bytes_stop_the_search(before: bytes, after: bytes) -> None:
    frame = pull(4)
    raw = np.frombuffer(before + frame + after, np.uint8)
    at = 0
    while at <= len(before):
        found, whole = find_frame(raw, at)
        assert at <= found <= len(before), "a frame that is there is not passed over"
        at = found + 1
    assert whole


def test_a_frame_is_found_behind_text_that_looks_like_one() -> None:
    lookalike = struct.pack(">II", 40, 20) + b"{no header at all..}" + bytes(20)
    raw = np.frombuffer(lookalike + pull(4), np.uint8)
    assert find_frame(raw, 0) == (len(lookalike), True)


def test_a_place_whose_header_is_not_whole_is_kept_for_later() -> None:
    raw = np.frombuffer(b"junk" + pull(4)[:30], np.uint8)
    assert find_frame(raw, 0) == (4, False)


def test_a_heartbeat_that_is_no_json_is_bad() -> None:
    beat = encode_frame(RemotingCommand(code=34, opaque=1, body=b"{not json"))
    rows = connected([Sent(True, 1, beat + pull(2))])
    assert [kind for kind, _ in rows] == [BAD, PULL]
    assert not isinstance(rows[0], FrameError)


def heartbeat(opaque: int, topics: list[str], **fields: object) -> bytes:
    group = {"groupName": "g", "subscriptionDataSet": [{"topic": topic, "subString": "*"} for topic in topics]}
    body = json.dumps({"clientID": "c", "consumerDataSet": [group]} | fields).encode()
    return encode_frame(RemotingCommand(code=34, opaque=opaque, body=body))


@pytest.mark.parametrize(
    ("second", "topics"),
    [
        # as the broker 5.5.0 took them
        ({"heartbeatFingerprint": 7, "withoutSub": True}, ["a", "b"]),
        ({"heartbeatFingerprint": 7, "withoutSub": False}, [None]),
        ({"heartbeatFingerprint": 0, "withoutSub": True}, [None]),
    ],
)
def test_a_heartbeat_without_subscriptions_of_5_keeps_those_before(second: dict[str, object], topics: list[str | None]) -> None:
    beats = [heartbeat(1, ["a", "b"], heartbeatFingerprint=7), heartbeat(2, [], **second)]
    rows = [row for _, row in connected([Sent(True, 1, b"".join(beats))])]
    first = rows[0]["requestId"]
    assert [row["topic"] for row in rows if row["requestId"] == first and row["event"] == "HEART_BEAT"] == ["a", "b"]
    assert [row.get("topic") for row in rows if row["requestId"] != first and row["event"] == "HEART_BEAT"] == topics


def test_subscriptions_from_before_a_capture_are_not_known() -> None:
    beat = heartbeat(1, [], heartbeatFingerprint=7, withoutSub=True)
    assert [row for _, row in connected([Sent(True, 1, beat)]) if row["event"] == "HEART_BEAT"] == []


def test_an_answer_without_a_part_of_its_body_has_its_offsets_and_no_digest() -> None:
    told = answer(1, b"x" * 500)
    cut = Sent(False, 1, told).packet()[:-300]
    packets = [Packet(0, 24, START, 1, Sent(True, 1, pull(1) + pull(2)).packet()), Packet(1, 600, START, 1, cut)]
    packets.append(Packet(2, 900, START, 1, Sent(False, 1 + len(told), answer(2, b"y")).packet()))
    (one,) = pack_segments(packets)
    assert isinstance(one, PackedSegments)
    connection = Connection(one.connection, DIGEST)
    rows = [*connection.feed(one), *connection.end()]
    found = {row["opaque"]: row for kind, row in rows if kind == PULL}
    assert (found[1]["recordedMaxOffset"], found[1]["recordedBodyLength"], found[1]["recordedBodySha256"]) == (9, 500, None)
    assert found[2]["recordedBodySha256"] is not None
    assert ["not captured" in row["error"] for kind, row in rows if kind == BAD] == [True]


def test_a_syn_that_was_captured_late_begins_no_other_connection() -> None:
    rows = pulls(connected([Sent(True, 1, pull(1)), Sent(True, 0, flags=SYN), Sent(False, 1, answer(1))], handshake=False))
    assert [row["recordedCode"] for row in rows] == [0]


def test_the_ends_have_their_names() -> None:
    (row,) = pulls(connected([Sent(True, 1, pull(1))]))
    assert row["client"] == f"{CLIENT[0]}:{CLIENT[1]}"
    assert row["connection"] == f"{CLIENT[0]}:{CLIENT[1]}-{SERVER[0]}:{SERVER[1]}"


def test_every_text_can_be_stored_whatever_a_client_escaped() -> None:
    header = b'{"code":11,"opaque":1,"extFields":{"topic":"a\\ud800","consumerGroup":"\\ud83d\\ude00"}}'
    frame = struct.pack(">II", 4 + len(header), len(header)) + header
    (row,) = pulls(connected([Sent(True, 1, frame)]))
    assert (row["topic"], row["consumerGroup"], row["queueOffset"]) == ("a?", "\U0001f600", None)


BODIES = st.sampled_from(
    [b"", b"{}", b'{"clientID":"\\ud800","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t"}]}]}', b"[1]"]
)


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.tuples(
            st.sampled_from([11, 14, 15, 34, 35, 0, 40, -1, 310]),
            st.integers(0, 3),
            st.integers(0, 2),
            st.dictionaries(
                st.sampled_from(["topic", "queueId", "queueOffset", "sysFlag", "consumerGroup", "offset", "commitOffset"]),
                st.text(max_size=4),
            ),
            BODIES,
        ),
        max_size=8,
    ),
    st.lists(st.integers(0, 900), max_size=8),
)
def test_whatever_is_said_becomes_rows_that_can_be_stored(said: list[tuple[int, int, int, dict[str, str], bytes]], cuts: list[int]) -> None:
    frames: dict[bool, list[bytes]] = {True: [], False: []}
    for code, flag, opaque, ext, body in said:
        command = RemotingCommand(code=code, flag=flag, opaque=opaque, ext_fields=dict(ext), body=body or None)
        frames[not flag & 1].append(encode_frame(command))
    sent = [one for side in (True, False) for one in segmented(b"".join(frames[side]), cuts, from_client=side)]
    found = connected(sent)
    assert sum(kind == PULL for kind, _ in found) == sum(code == 11 and not flag & 1 for code, flag, *_ in said)
    schema = arrow_of(_schema())
    assert len(pa.RecordBatch.from_pylist([{"kind": kind, kind: row} for kind, row in found], schema=schema)) == len(found)


def talk(megabytes: int) -> Iterator[Packet]:
    """Packets of one connection, each made when it is read."""
    asked, told = pull(1), answer(1, bytes(30_000))
    segments = [(True, asked), *((False, told[start : start + 1448]) for start in range(0, len(told), 1448))]
    places = {True: 1, False: 1}
    for number in range(megabytes * 1_000_000 // 1448):
        from_client, payload = segments[number % len(segments)]
        yield Packet(number, 24 + number, START + number, 1, Sent(from_client, places[from_client], payload).packet())
        places[from_client] += len(payload)


def peak_of(megabytes: int) -> int:
    tracemalloc.start()
    try:
        connection = None
        found = 0
        for one in pack_segments(talk(megabytes)):
            assert isinstance(one, PackedSegments)
            connection = connection or Connection(one.connection, DIGEST)
            found += sum(kind == PULL for kind, _ in connection.feed(one))
        assert found >= megabytes * 25
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_length_of_a_connection() -> None:
    peak_of(2)  # compiles, and fills what is kept for good
    assert peak_of(24) < 1.2 * peak_of(6)
