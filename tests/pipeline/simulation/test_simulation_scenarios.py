"""Scenario files of simulations: how they are read, and why one is refused."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.generate.workload_fields import WorkloadError
from pipeline.main import run
from pipeline.settings.settings import SettingsError
from pipeline.simulation.lag_picture import lag_picture
from pipeline.simulation.plans import plan_of
from pipeline.simulation.recorded_messages import recorded_messages
from pipeline.simulation.scenario import BROKER_SETTINGS, CHECK_SETTINGS, Variant, located, read_scenario, read_variant
from pipeline.simulation.simulation_rows import SimulationRun, rows_of
from udfs.broker.message_queue import MessageQueue
from udfs.simulation.arrivals import ALL_MATCH
from udfs.simulation.group_plan import SECOND, ClientPlan, GroupPlan, Rates, Recorded
from udfs.simulation.outcome import simulate
from udfs.simulation.service_time import LOGNORMAL, UNIFORM

WHOLE = """\
group = "g"
topic = "orders"
until = "10m"
[messages]
rate = 10
queues = 6
tags = { paid = 3, sent = 1 }
[listener]
takes = "20ms"
[[clients]]
count = 2
[[clients]]
name = "late"
joins = "2m"
"""


def read(folder: Path, text: str, *varied: str) -> list[Variant]:
    return read_scenario(text, str(folder / "scenario.toml"), varied)


def test_a_scenario_is_read_as_it_says(tmp_path: Path) -> None:
    (variant,) = read(tmp_path, WHOLE)
    plan = plan_of(variant.scenario, 3, "here")
    assert [client.client_id for client in plan.clients] == ["client-0", "client-1", "late-0"]
    assert [client.joins for client in plan.clients] == [0, 0, 120 * SECOND]
    assert isinstance(plan.messages, Rates)
    assert (plan.until, plan.seed, len(plan.queues), plan.listener.first) == (600 * SECOND, 3, 6, 20_000.0)
    assert sum(plan.messages.shares) == pytest.approx(1)


def test_the_last_of_many_queues_gets_no_share_under_the_greatest_skew(tmp_path: Path) -> None:
    (variant,) = read(tmp_path, WHOLE.replace("queues = 6", "queues = 10_000\nskew = 100"))
    messages = plan_of(variant.scenario, 1, "here").messages
    assert isinstance(messages, Rates)
    assert (messages.shares[0], messages.shares[-1]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("changed", "to", "line", "says"),
    [
        ("count = 2", "count = 0", 11, "a whole number from 1"),
        ("rate = 10", "rate = -1", 5, "a number from 0"),
        ("rate = 10", "rate = 10\nrecorded = true", 4, "recorded = true, for the messages of the lake, or a rate"),
        ("rate = 10\n", "", 4, "or a rate, found neither"),
        ("queues = 6", "queue = 6", 6, "the nearest known name is queues"),
        ("until = \"10m\"", "until = \"soon\"", 3, "a number from 0"),
        ("until = \"10m\"", "until = 0", 3, "a duration above 0"),
        ("topic = \"orders\"", "topic = \"or ders\"", 2, "a name of up to 127"),
        ("until = \"10m\"", "until = \"10m\"\nsubscription = \"payd\"", 4, "the nearest known name is paid"),
        ("until = \"10m\"", "until = \"10m\"\nstrategy = \"AVERAGE\"", 4, "the nearest known name is AVG"),
        ("until = \"10m\"", "until = \"10m\"\nbegin = \"committed\"", 4, "because no messages are recorded"),
        ("topic = \"orders\"", "topic = \"%RETRY%g\"", 2, "another topic than the group's own"),
        ("until = \"10m\"", "until = \"10m\"\nsample = \"1ms\"", 4, "100,000 samples at most"),
        ("queues = 6", "brokers = [\"a\", \"a\"]", 6, "names that differ"),
        ("name = \"late\"", "name = \"client\"", 13, "a name that no other table of clients has"),
        ("takes = \"20ms\"", "takes = \"20m\"", 9, "15 minutes or less"),
        ("takes = \"20ms\"", "takes = [\"30ms\", \"20ms\"]", 9, "the lesser duration first"),
        ("takes = \"20ms\"", "takes = [\"20ms\", \"soon\"]", 9, "listener, takes[1]: expected a number from 0"),
        ("takes = \"20ms\"", "takes = { median = \"20ms\", sigma = 7 }", 9, "listener, takes, sigma: expected a number from 0 to 5"),
        ("takes = \"20ms\"", "fails = 1.5", 9, "a number from 0 to 1"),
        ("joins = \"2m\"", "joins = \"20m\"", 14, "a time before the end at 600 s"),
        ("joins = \"2m\"", "joins = \"2m\"\ncrashes = \"1m\"", 15, "a time after the last one joins at 120 s"),
        ("joins = \"2m\"", "joins = \"2m\"\nstalls = [[\"1m\", \"30s\"]]", 15, "[from, to]"),
        ("joins = \"2m\"", "joins = \"2m\"\nstalls = [[0, 1], [1, \"x\"]]", 15, "clients[1], stalls[1][1]: expected a number from 0"),
        ("rate = 10\n", "recorded = true\n", 6, "only the field begins, because the lake has the recorded messages"),
        ("queues = 6", "begins = 2024-05-01T12:00:00Z", 6, "recorded = true, which begins needs"),
        ("queues = 6", "delay = -1", 6, "a whole number from 0"),
        ("[listener]", "[broker]\nfileReservedTime = 3\n[listener]", 9, "a setting that a simulation reads: messageDelayLevel"),
        ("[listener]", "[consumer]\nmessageModel = \"BROADCAST\"\n[listener]", 9, "the nearest known name is BROADCASTING"),
        ("[listener]", "[consumer]\nmessageModel = \"BROADCASTING\"\n[listener]\norderly = true", 11, "never pull, because"),
        ("[listener]", "[consumer]\npullBatchsize = 8\n[listener]", 9, "the nearest known name is pullBatchSize"),
        ("[listener]", "[consumer]\npullBatchSize = 0\n[listener]", 9, "a whole number from 1"),
    ],
)  # fmt: skip
def test_a_scenario_that_cannot_be_is_refused_with_its_line(tmp_path: Path, changed: str, to: str, line: int, says: str) -> None:
    assert WHOLE.count(changed) == 1
    with pytest.raises(WorkloadError) as refused:
        read(tmp_path, WHOLE.replace(changed, to))
    assert f"scenario.toml, line {line}" in str(refused.value)
    assert says in str(refused.value)


def test_a_scenario_without_clients_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"line 1, clients: expected a list that is not empty"):
        read(tmp_path, "clients = []\n" + WHOLE.partition("[[clients]]")[0])


def test_the_command_ends_with_2_and_the_line_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(WHOLE.replace("rate = 10", "rates = 10"), "utf-8")
    assert run(["simulate", "--lake", str(tmp_path / "lake"), "--scenario", str(path)]) == 2
    told = capsys.readouterr().err
    assert "scenario.toml, line 5" in told
    assert "the nearest known name is rate" in told
    assert not (tmp_path / "lake").exists()


def test_a_file_that_is_no_toml_is_refused_with_the_decoders_line(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="line 2, column"):
        read(tmp_path, 'group = "g"\ntopic = = "t"\n')


@pytest.mark.parametrize("levels", [300, 480, 3000])
def test_values_nested_too_deeply_are_refused(tmp_path: Path, levels: int, capsys: pytest.CaptureFixture[str]) -> None:
    deep = "[" * levels + "]" * levels
    path = tmp_path / "scenario.toml"
    for text, varied in ((f"sample = {deep}\n{WHOLE}", []), (WHOLE, ["--vary", f"sample={deep}"])):
        path.write_text(text, "utf-8")
        assert run(["simulate", "--lake", str(tmp_path / "lake"), "--scenario", str(path), *varied]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("number", ["0x" + "f" * 4000, "9" * 5000])
def test_a_number_of_too_many_digits_is_refused(tmp_path: Path, number: str) -> None:
    for text, varied in ((f"sample = {number}\n{WHOLE}", []), (WHOLE, [f"sample={number}"])):
        with pytest.raises(WorkloadError, match=r"scenario\.toml.*(an integer of 16000 bits|999\.\.\.|Exceeds the limit)"):
            read(tmp_path, text, *varied)


def test_an_unknown_setting_of_the_broker_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"line 16.*messageDelayLevel"):
        read(tmp_path, WHOLE + '[broker]\nmessageDelayLevels = "1s"\n')


@pytest.mark.parametrize(
    ("more", "line", "says"),
    [
        ('[broker]\nmessageDelayLevel = "1s  5s"\n', 16, "levels that the broker reads"),
        ('[broker]\nmessageDelayLevel = "1s -5s"\n', 16, "not below 0"),
        ("[broker]\nlongPollingEnable = false\n", 15, "delay levels and longPollingEnable"),
        ('[[clients]]\nname = "more"\nqueues = [6]\n', 17, "numbers below 6"),
    ],
)
def test_what_only_a_plan_shows_is_refused_with_its_line(tmp_path: Path, more: str, line: int, says: str) -> None:
    text, path = WHOLE + more, str(tmp_path / "scenario.toml")
    if "queues = [6]" in more:
        text = 'strategy = "CONFIG"\n' + text.replace("count = 2", "queues = [0]").replace('joins = "2m"', "queues = [1]")
        line += 1
    (variant,) = read(tmp_path, text)
    with pytest.raises(WorkloadError, match=rf"scenario.toml, line {line}, .*{says}"), located(path, text):
        plan_of(variant.scenario, 1, path)


@pytest.mark.parametrize("given", ['strategy = "AVG_BY_CIRCLE"', 'begin = "committed"'])
def test_a_group_that_broadcasts_has_no_share_and_no_committed_offsets(tmp_path: Path, given: str) -> None:
    recorded = WHOLE.replace("rate = 10\nqueues = 6\ntags = { paid = 3, sent = 1 }", "recorded = true")
    text = f'{given}\n{recorded}[consumer]\nmessageModel = "BROADCASTING"\n'
    with pytest.raises(WorkloadError, match=rf"line 1, {given.partition(' ')[0]}"):
        read(tmp_path, text)


def test_every_setting_of_the_broker_that_is_taken_counts(tmp_path: Path) -> None:
    given = {
        "messageDelayLevel": '"1s"',
        "maxTransferBytesOnMessageInMemory": "1",
        "maxTransferCountOnMessageInMemory": "2",
        "mappedFileSizeConsumeQueue": "40",
        "notifyConsumerIdsChangedEnable": "false",
    }
    # without longPollingEnable there is no simulation, and the last ones go with transactions
    assert {*given, "longPollingEnable", *CHECK_SETTINGS} == set(BROKER_SETTINGS)
    (plain,) = read(tmp_path, WHOLE)
    for name, value in given.items():
        (variant,) = read(tmp_path, f"{WHOLE}[broker]\n{name} = {value}\n")
        assert plan_of(variant.scenario, 1, "here").broker != plan_of(plain.scenario, 1, "here").broker, name


def test_a_task_reads_the_variant_of_its_number(tmp_path: Path) -> None:
    varied, path = ["clients.count=1,4", "messages.delay=0,3,5"], str(tmp_path / "scenario.toml")
    variants = read(tmp_path, WHOLE, *varied)
    assert [read_variant(WHOLE, path, varied, number) for number in range(6)] == variants
    assert [one.scenario.messages.delay for one in variants] == [0, 3, 5] * 2
    assert plan_of(variants[1].scenario, 1, "here").messages.delay_level == 3  # type: ignore[union-attr]


def test_a_message_that_has_waited_for_long_is_told_apart_from_one_of_which_nobody_knows() -> None:
    days = 10 * 86_400
    recorded = Recorded(
        first=np.array([0, 1], np.int64),
        first_offset=np.zeros(1, np.int64),
        times=np.array([-days * SECOND], np.int64),
        flags=np.full(1, ALL_MATCH, np.uint8),
        sizes=np.full((1, 2), 100, np.int32),
    )
    rates = Rates(steps=((0, 0.0),), ends=SECOND, shares=(1.0,), backlog=(1,))
    for messages, wanted in ((recorded, [days * 1000 + more for more in (0, 10_000, 20_000)]), (rates, [None] * 3)):
        plan = GroupPlan(
            group="g",
            queues=(MessageQueue("t", "b", 0),),
            committed=(0,),
            clients=(ClientPlan(client_id="c", joins=25 * SECOND),),
            messages=messages,
            until=30 * SECOND,
        )
        found = [row for batch in rows_of(SimulationRun(0, 0, plan)) for row in batch.to_pylist() if row["tableName"] == "simulated_lag"]
        assert [row["waitedMillis"] for row in found if row["topic"] == "t"][:3] == wanted


def test_variants_are_all_combinations_of_what_is_varied(tmp_path: Path) -> None:
    takes = "listener.takes=5ms,[10ms, 30ms]"
    variants = read(tmp_path, WHOLE, "clients.count=1,4", takes.replace("[10ms, 30ms]", '["10ms", "30ms"]'), "clients.1.count=2")
    assert [variant.given["clients.count"] for variant in variants] == ["1", "1", "4", "4"]
    assert [part.count for part in variants[2].scenario.clients] == [4, 2]
    assert variants[1].scenario.listener.takes.shape == UNIFORM
    (other,) = read(tmp_path, WHOLE, 'listener.takes={median = "20ms", sigma = 0.5}')
    assert (other.scenario.listener.takes.shape, other.scenario.listener.takes.second) == (LOGNORMAL, 0.5)


@pytest.mark.parametrize(
    ("varied", "told"),
    [
        ("clients.count", "name=value,value"),
        ("clients.7.count=1", "a number from 0 to 1"),
        ("nothing=1", "one of the fields"),
        ("question.deep=1", "a field of the scenario"),
        ("group.a.b=1", "a field of the scenario"),
        ("clients.count=3,3", "each value once"),
    ],
)
def test_what_cannot_be_varied_is_refused(tmp_path: Path, varied: str, told: str) -> None:
    with pytest.raises(WorkloadError, match=f"expected {told}"):
        read(tmp_path, 'question = "?"\n' + WHOLE, varied)


def test_a_field_that_is_varied_twice_has_all_its_values(tmp_path: Path) -> None:
    variants = read(tmp_path, WHOLE, "clients.count=1", "messages.rate=5,6", "clients.count=4")
    found = [(one.given["clients.count"], one.given["messages.rate"]) for one in variants]
    assert found == [("1", "5"), ("1", "6"), ("4", "5"), ("4", "6")]


def test_clients_without_a_name_are_told_apart(tmp_path: Path) -> None:
    (variant,) = read(tmp_path, WHOLE.replace('name = "late"\n', ""))
    assert [client.client_id for client in plan_of(variant.scenario, 1, "here").clients] == ["client-0", "client-1", "client1-0"]


@pytest.mark.parametrize("even", ["true", "false"])
def test_steps_of_a_rate_behind_the_end_of_all_messages_count_for_nothing(tmp_path: Path, even: str) -> None:
    steps = WHOLE.replace("rate = 10", f'rate = [["0s", 10], ["9m", 1000]]\neven = {even}\nlasts = "300.5s"')
    (variant,) = read(tmp_path, steps)
    outcome = simulate(plan_of(variant.scenario, 1, "here"))
    assert outcome.consumed_all
    assert outcome.counts["succeeded"] == pytest.approx(3005, rel=0.1)


def test_a_subscription_without_a_tag_gets_nothing(tmp_path: Path) -> None:
    (variant,) = read(tmp_path, 'subscription = " || "\n' + WHOLE.replace("tags = { paid = 3, sent = 1 }\n", ""))
    assert simulate(plan_of(variant.scenario, 1, "here")).counts["succeeded"] == 0


def test_a_group_takes_the_share_of_messages_that_its_tags_have(tmp_path: Path) -> None:
    (variant,) = read(tmp_path, 'subscription = "sent || none"\n' + WHOLE.replace("sent = 1 }", 'sent = 1, none = 4 }\nlasts = "5m"'))
    outcome = simulate(plan_of(variant.scenario, 1, "here"))
    assert outcome.consumed_all
    assert outcome.counts["succeeded"] == pytest.approx(3000 * 5 / 8, rel=0.05)


def test_each_client_of_the_strategy_config_has_its_own_queues_and_nobody_the_retry_topic(tmp_path: Path) -> None:
    text = 'strategy = "CONFIG"\n' + WHOLE.replace("count = 2", "queues = [0, 1, 2]").replace(
        'name = "late"', 'name = "late"\nqueues = [3, 4]'
    )
    (variant,) = read(tmp_path, text)
    outcome = simulate(plan_of(variant.scenario, 1, "here"))
    assert not outcome.consumed_all  # queue 5 is nobody's
    taken = {event.client_id: [queue.queueId for queue in event.taken] for event in outcome.rebalances}
    assert taken == {"client-0": [0, 1, 2], "late-0": [3, 4]}


def test_machine_rooms_keep_queues_with_the_clients_of_their_room(tmp_path: Path) -> None:
    text = 'strategy = "MACHINE_ROOM_NEARBY"\n' + WHOLE.replace("queues = 6", 'queues = 2\nbrokers = ["east@a", "west@b"]')
    text = text.replace("count = 2", 'room = "east"').replace('name = "late"', 'name = "late"\nroom = "west"')
    (variant,) = read(tmp_path, text)
    outcome = simulate(plan_of(variant.scenario, 1, "here"))
    last = {event.client_id: {queue.brokerName for queue in event.taken} for event in outcome.rebalances if event.topic == "orders"}
    assert last["late-0@west"] == {"west@b"}
    dropped = [event for event in outcome.rebalances if event.dropped and event.topic == "orders"]
    assert [{queue.brokerName for queue in event.dropped} for event in dropped] == [{"west@b"}]


def test_recorded_messages_keep_offsets_and_times_and_the_client_drops_what_only_the_hash_code_takes() -> None:
    rows = pa.table(
        {
            "queueId": pa.array([0, 0, 2, 2, 2], pa.int32()),
            "queueOffset": [7, 8, 0, 1, 2],
            "storeTimestamp": [1_000, 1_500, 900, 800, 2_000],
            "size": pa.array([150, 160, 170, 180, 190], pa.int32()),
            "tagsCode": [2112, 2112, 97, 2112, 0],  # Aa, BB, a, Aa, none
            "tags": ["Aa", "BB", "a", "Aa", None],
            "bodySize": pa.array([50, 60, 70, 80, 90], pa.int32()),
        }
    )
    found = recorded_messages(rows, 3, "Aa", 1_000, "here")
    assert found.first.tolist() == [0, 2, 2, 5]
    assert found.first_offset.tolist() == [7, 0, 0]
    assert found.times.tolist() == [0, 500_000, -100_000, -100_000, 1_000_000]  # the clock was set back between two of them
    assert found.flags.tolist() == [3, 1, 0, 3, 0]
    assert found.sizes[1].tolist() == [160, 60]
    with pytest.raises(WorkloadError, match="every offset of queue 2"):
        recorded_messages(rows.filter(pa.array([True, True, True, False, True])), 3, "*", 0, "here")


SVG = "{http://www.w3.org/2000/svg}"


def elements_of(root: ET.Element, kind: str) -> list[ET.Element]:
    return [group for group in root.iter(f"{SVG}g") if re.fullmatch(f"{kind}[0-9]+", group.get("id", ""))]


def test_a_picture_has_a_line_a_variant_and_no_text_becomes_markup() -> None:
    picture = lag_picture("<b>?", {"a&b": [(0, 0), (60_000, 1234)], "": [], "$x$": [(0, 1)]})
    root = ET.fromstring(picture)  # noqa: S314 (ours)
    assert [line.findtext(f"{SVG}title") for line in elements_of(root, "line")] == [
        "a&b: at most 1,234 behind",
        ": at most 0 behind",
        "$x$: at most 1 behind",
    ]
    assert "<title>&lt;b&gt;?</title>" in picture
    assert picture.count("a&amp;b: at most 1,234 behind</t") == 2, "in the legend, and where the line is pointed at"
    assert picture.count("$x$: at most 1 behind</t") == 2, "no formula"


def test_a_picture_says_what_was_asked_and_what_its_axes_are() -> None:
    root = ET.fromstring(lag_picture("why " * 60, {f"variant {number}" * 20: [(0, number), (90_000, 0)] for number in range(9)}))  # noqa: S314
    texts = [text for text in root.iter(f"{SVG}text") if text.text]
    titles = [text.text or "" for group in elements_of(root, "title") for text in group.iter(f"{SVG}text")]
    assert " ".join(titles).split() == ["why"] * 60
    assert {"messages behind", "virtual time", "1m", "8"} <= {text.text for text in texts}
    assert max(len(text.text or "") for text in texts) < 130, "longer ones leave the picture"
    styles = {path.get("style") for line in elements_of(root, "line") for path in line.iter(f"{SVG}path")}
    assert len(styles) == 9, "no two lines look alike"
    assert all(style and "stroke: #" in style for style in styles)
