"""Makes random scenarios to find what recorded ones miss: every check and its order, registrations, offsets, filters, held pulls.

Names are unique to a scenario, because the real broker runs many scenarios one after the other. Times keep a distance to the sweeps of held
pulls, so that the time the real broker needs for its work changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Step = dict[str, Any]
SUB_VERSION = 1_600_000_000_000
BASES: dict[str, dict[str, Any]] = {
    "A": {"brokerName": "broker-a", "brokerClusterName": "DefaultCluster"},
    "B": {
        "brokerName": "broker-a",
        "brokerClusterName": "DefaultCluster",
        "mappedFileSizeCommitLog": 131072,
        "mappedFileSizeConsumeQueue": 400,
        "cleanResourceInterval": 100000000,
    },
    "C": {
        "brokerName": "broker-a",
        "brokerClusterName": "DefaultCluster",
        "enableCalcFilterBitMap": True,
        "filterSupportRetry": True,
        "enableConsumeQueueExt": True,
    },
    "D": {"brokerName": "broker-b", "brokerClusterName": "other", "autoCreateTopicEnable": False, "maxErrorRateOfBloomFilter": 7},
    "E": {"enableLmq": True, "enableMultiDispatch": True},
}
# the base with light queues
LIGHT = "E"
TAGS = ("TagA", "TagB", "Aa", "BB", "Ünï", " TagA", "TagA||TagB", "", None, None)
EXPRESSIONS: tuple[tuple[str | None, str | None], ...] = (
    ("*", "TAG"),
    ("*", None),
    ("TagA", "TAG"),
    ("TagA || TagB", "TAG"),
    ("Aa", None),
    ("", "TAG"),
    (None, "TAG"),
    ("||", "TAG"),
    (" || ", "TAG"),
    ("nothing", "TAG"),
    ("TagA", ""),
    ("*", ""),
    ("a > 5", "SQL92"),
    ("a > ", "SQL92"),
    ("a IS NULL OR TAGS = 'TagB'", "SQL92"),
    ("region IN ('east', 'west') AND NOT (a = 1)", "SQL92"),
    ("", "SQL92"),
    (None, "SQL92"),
    ("a LIKE 'x'", "SQL92"),
    ("TagA", "XPATH"),
    ("a > 5", "sql92"),
)
REGISTERED = (
    ("*", "TAG"),
    ("TagA", "TAG"),
    ("TagA||TagB", "TAG"),
    ("a > 5", "SQL92"),
    ("a < 12", "SQL92"),
    ("a > ", "SQL92"),
    ("", "SQL92"),
    ("TagB", "TAG"),
)


def chance(digits: random.Random, probability: float) -> bool:
    return digits.random() < probability


def message(digits: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"tags": digits.choice(TAGS)}
    if chance(digits, 0.6):
        made["props"] = {"a": digits.choice(["1", "6", "10", "18", "x", ""])}
        if chance(digits, 0.3):
            made["props"]["region"] = digits.choice(["east", "west", "north"])
    if chance(digits, 0.2):
        made["keys"] = digits.choice(["k1", "k1 k2", ""])
    if chance(digits, 0.5):
        made["bodySize"] = digits.choice([0, 1, 20, 300, 20_000])
    return made


# 113 letters and more make a group too long
ODD_ENDS = ("", "", "|a", ".b", " b", "ü", "x" * 130)


class Maker:
    """Collects the steps of one scenario."""

    def __init__(self, name: str, base: str, seed: int) -> None:
        self.digits = random.Random(seed)
        self.name, self.base = name, base
        self.topics = [f"{name}T{i}" for i in range(2)]
        # the second group often has a name that 5.5.0 gives to no group
        self.groups = [f"{name}G0", f"{name}G1{self.digits.choice(ODD_ENDS)}"]
        self.light = [f"%LMQ%{name}{i}" for i in range(2)]
        if base == LIGHT:
            self.topics[1], self.groups[1] = self.light
        self.queues = 4
        self.steps: list[Step] = []
        self.parked = 0

    def scenario(self) -> dict[str, Any]:
        return {"name": self.name, "why": "made up", "broker": self.base, "brokerBase": BASES[self.base], "steps": self.steps}

    def add(self, op: str, **fields: Any) -> None:
        self.steps.append({"op": op, **fields})
        if op == "send" and self.base == LIGHT:  # the real broker dispatches to light queues after the send is answered
            self.steps.append({"op": "sleep", "ms": 20})

    def message(self) -> dict[str, Any]:
        made = message(self.digits)
        if self.base == LIGHT and chance(self.digits, 0.5):
            one, two = self.light
            made.setdefault("props", {})["INNER_MULTI_DISPATCH"] = self.digits.choice([one, one, f"{one},{two}", f"{two},{two},", " "])
        return made

    def pick_topic(self) -> str:
        return self.digits.choice([self.topics[0]] * 4 + [self.topics[1], f"%RETRY%{self.groups[0]}"])

    def pick_group(self) -> str:
        return self.digits.choice([self.groups[0]] * 5 + [self.groups[1]])

    def begin(self) -> None:
        for topic in self.topics[: self.digits.choice([1, 2, 2])]:
            self.add("topic", topic=topic, perm=6, readQueueNums=self.queues, writeQueueNums=self.queues)
        if chance(self.digits, 0.7):
            self.group_step()
        self.send(0, self.digits.choice([0, 1, 3, 12, 40]))
        if chance(self.digits, 0.6):
            self.add("brokerConfig", set={"enablePropertyFilter": True})
        if chance(self.digits, 0.6):
            self.heartbeat()

    def group_step(self) -> None:
        digits = self.digits
        config: dict[str, Any] = {}
        if chance(digits, 0.15):
            config["consumeEnable"] = False
        if chance(digits, 0.25):
            config["consumeBroadcastEnable"] = False
        if chance(digits, 0.4):
            config |= {"brokerId": digits.choice([0, 2, 3]), "whichBrokerWhenConsumeSlowly": digits.choice([1, 5, -1])}
        if chance(digits, 0.2):
            config["notifyConsumerIdsChangedEnable"] = False
        if chance(digits, 0.2):
            config["retryQueueNums"] = digits.choice([0, 1, 3])
        self.add("group", group=self.pick_group(), config=config)

    def send(self, queue_id: int | None = None, count: int | None = None) -> None:
        digits = self.digits
        queue_id = digits.choice([0, 0, 0, 1, 2]) if queue_id is None else queue_id
        count = digits.choice([1, 1, 2, 5]) if count is None else count
        topic = self.topics[0] if self.base == "C" or chance(digits, 0.8) else self.topics[-1]
        if count:
            self.add("send", topic=topic, queueId=queue_id, messages=[self.message() for _ in range(count)])

    def heartbeat(self) -> None:
        digits, client = self.digits, self.digits.choice(["c1", "c2"])
        subscribed = digits.choice([self.topics[:1], self.topics[:1], self.topics, self.topics[1:], []])
        subscriptions = []
        for topic in subscribed:
            text, kind = digits.choice(REGISTERED)
            version = SUB_VERSION + digits.choice([-1, 0, 0, 1, 2, 5])
            one = {"topic": topic, "subString": text, "expressionType": kind, "subVersion": version}
            if chance(digits, 0.1):
                one["classFilterMode"] = True
            if chance(digits, 0.1) and kind == "TAG":
                one["codeSetOverride"] = [2598920]
            subscriptions.append(one)
        fields: dict[str, Any] = {"messageModel": "BROADCASTING"} if chance(digits, 0.3) else {}
        client_id = f"{client}@{digits.choice('xxy')}"
        self.add("heartbeat", client=client, clientId=client_id, group=self.pick_group(), subscriptions=subscriptions, **fields)

    def ext(self, flags: int | None = None) -> dict[str, Any]:
        digits = self.digits
        text, kind = digits.choice(EXPRESSIONS)
        ext: dict[str, Any] = {
            "consumerGroup": self.pick_group(),
            "topic": self.pick_topic(),
            "queueId": digits.choice([0] * 8 + [1, 2, 3, 4, -1]),
            "queueOffset": digits.choice([0, 0, 1, 2, 5, 12, 13, 40, 41, 500, -1, 2**62]),
            "maxMsgNums": digits.choice([32, 32, 1, 2, 8, 0, 33]),
            "sysFlag": digits.choice([4, 4, 5, 0, 1, 12, 16, 20, 64]) if flags is None else flags,
            "commitOffset": digits.choice([0, 3, 7, -2, 10**12]),
            "suspendTimeoutMillis": 15000,
            "subscription": text,
            "subVersion": SUB_VERSION + digits.choice([0, 0, 0, 1, -1]),
            "expressionType": kind,
        }
        if chance(digits, 0.12):
            ext.pop(digits.choice(sorted(ext)))
        if chance(digits, 0.05):
            ext[digits.choice(["queueId", "queueOffset", "maxMsgNums", "sysFlag", "subVersion"])] = digits.choice(["x", " 1", "+1", "1.5"])
        return ext

    def pull(self) -> None:
        self.add("pull", client=self.digits.choice(["c1", "c1", "c3"]), ext=self.ext())

    def negative_pull(self) -> None:
        self.add("pull", client="c1", ext=self.ext(4) | {"maxMsgNums": -1})

    def drain(self) -> None:
        ext = self.ext(4) | {"queueOffset": self.digits.choice([0, 1, 5, 39]), "queueId": 0}
        self.add("drain", client="c1", ext=ext)

    def look(self) -> None:
        digits, topic, group = self.digits, self.pick_topic(), self.pick_group()
        kind = digits.choice(["consumerOffset", "queueRange", "filterState", "groupState", "groupConfig", "topicConfig", "pushedRequests"])
        fields: dict[str, dict[str, Any]] = {
            "consumerOffset": {"group": group, "topic": topic, "queueId": 0},
            "queueRange": {"topic": topic, "queueId": digits.choice([0, 1])},
            "filterState": {"group": group, "topic": self.topics[0]},
            "groupState": {"group": group},
            "groupConfig": {"group": group},
            "topicConfig": {"topic": topic},
            "pushedRequests": {"client": digits.choice(["c1", "c2"])},
        }
        self.add(kind, **fields[kind])

    def ask(self) -> None:
        digits, group, topic = self.digits, self.pick_group(), self.pick_topic()
        queue = {"topic": topic, "queueId": digits.choice([0, 1])}
        requests: list[tuple[int, dict[str, Any]]] = [
            (14, {"consumerGroup": group, **queue}),
            (14, {"consumerGroup": group, **queue}),
            (15, {"consumerGroup": group, **queue, "commitOffset": digits.choice([0, 4, -3, 99])}),
            (30, queue),
            (31, queue),
            (29, queue | {"timestamp": digits.choice([0, 9_999_999_999_999])}),
            (38, {"consumerGroup": group}),
            (361, {}),
        ]
        code, ext = digits.choice(requests)
        if chance(digits, 0.1) and ext:
            ext.pop(digits.choice(sorted(ext)))
        self.add("request", client="c1", code=code, ext=ext)

    def broker_config(self) -> None:
        settings: list[tuple[str, list[Any]]] = [
            ("enablePropertyFilter", [True, True, False]),
            ("slaveReadEnable", [True, False]),
            ("autoCreateSubscriptionGroup", [True, False]),
            ("brokerPermission", [6, 6, 2, 4]),
            ("transferMsgByHeap", [True, False]),
            ("filterSupportRetry", [True, False]),
            ("notifyConsumerIdsChangedEnable", [True, False]),
        ]
        name, values = self.digits.choice(settings)
        self.add("brokerConfig", set={name: self.digits.choice(values)})

    def store_config(self) -> None:
        settings: list[tuple[str, list[Any]]] = [
            ("brokerRole", ["SLAVE", "SYNC_MASTER", "ASYNC_MASTER", "ASYNC_MASTER"]),
            ("offsetCheckInSlave", [True, False]),
            ("accessMessageInMemoryMaxRatio", [0, 40]),
            ("maxTransferCountOnMessageInMemory", [0, 1, 3, 32]),
            ("maxTransferBytesOnMessageInMemory", [100, 2000, 262144]),
            ("maxTransferCountOnMessageInDisk", [2, 8]),
        ]
        name, values = self.digits.choice(settings)
        self.add("storeConfig", set={name: self.digits.choice(values)})

    def topic_step(self) -> None:
        digits = self.digits
        perm, queues = digits.choice([6, 6, 4, 2, 0]), digits.choice([4, 4, 1, 0, 8])
        self.add("topic", topic=self.topics[0], perm=perm, readQueueNums=queues, writeQueueNums=4)

    def leave(self) -> None:
        client = self.digits.choice(["c1", "c2"])
        group = self.pick_group()
        self.add("unregister", client=client, clientId=f"{client}@x", group=group)

    def min_offset(self) -> None:
        self.add("minOffset", topic=self.topics[0], queueId=0, offset=self.digits.choice([0, 1, 3, 5]))

    def readable(self) -> None:
        self.add("storeReadable", value=self.digits.choice([True, True, False]))

    def one_way(self) -> None:
        self.add("pull", client="c1", ext=self.ext(), oneway=True, noResponseMs=60)

    def lose_queue_file(self) -> None:
        if self.base == "B":
            self.add("storeConfig", set={"brokerRole": "ASYNC_MASTER"})  # a slave takes no messages
            self.add("send", topic=self.topics[0], queueId=3, count=45, template={"tags": "TagA", "bodySize": 16})
            self.add("deleteConsumeQueueHead", topic=self.topics[0], queueId=3)
            for offset in (0, 19, 20, 44, 45):
                self.add("pull", client="c1", ext=self.ext(4) | {"queueId": 3, "queueOffset": offset, "topic": self.topics[0]})


def checks(name: str, base: str, seed: int, length: int = 22) -> dict[str, Any]:
    """A scenario without held pulls."""
    maker = Maker(name, base, seed)
    maker.begin()
    choices: list[tuple[Callable[[], None], int]] = [
        (maker.pull, 16),
        (maker.drain, 2),
        (maker.look, 5),
        (maker.ask, 4),
        (maker.send, 3),
        (maker.heartbeat, 4),
        (maker.broker_config, 3),
        (maker.store_config, 2),
        (maker.topic_step, 1),
        (maker.group_step, 1),
        (maker.leave, 1),
        (maker.min_offset, 1),
        (maker.readable, 1),
        (maker.negative_pull, 1),
        (maker.one_way, 1),
        (maker.lose_queue_file, 1),
    ]
    actions, weights = zip(*choices, strict=True)
    for action in maker.digits.choices(actions, weights, k=length):
        action()
    return maker.scenario()


def meddle(maker: Maker, ids: list[str], budget: int) -> None:
    """Add steps that happen while pulls are held, for up to `budget` ms."""
    digits, topic = maker.digits, maker.topics[0]
    settings = [{"brokerPermission": 2}, {"enablePropertyFilter": False}, {"slaveReadEnable": True}]
    actions: list[Callable[[], None]] = [
        *[lambda: maker.add("send", topic=topic, queueId=digits.choice([0, 0, 1]), messages=[maker.message()])] * 4,
        lambda: maker.add("brokerConfig", set=digits.choice(settings)),
        maker.group_step,
        maker.heartbeat,
        lambda: maker.add("topic", topic=topic, perm=digits.choice([6, 2]), readQueueNums=digits.choice([4, 1, 0]), writeQueueNums=4),
        lambda: maker.add("storeConfig", set={"brokerRole": digits.choice(["SLAVE", "ASYNC_MASTER"])}),
        maker.leave,
    ]
    for _ in range(digits.choice([1, 2, 3, 4])):
        digits.choice(actions)()
        pause = digits.choice([150, 300, 600]) if budget > 600 else 60
        budget -= pause
        maker.add("sleep", ms=pause)
        maker.add("expectNoResponse", id=digits.choice(ids), ms=20)
        maker.add("holdCount", topic=topic, queueId=0)


def holds(name: str, base: str, seed: int) -> dict[str, Any]:
    """A scenario of held pulls: what wakes them, and when."""
    maker = Maker(name, base, seed)
    digits = maker.digits
    maker.add("topic", topic=maker.topics[0], perm=6, readQueueNums=4, writeQueueNums=4)
    maker.add("brokerConfig", set={"enablePropertyFilter": True})
    if chance(digits, 0.5):
        maker.heartbeat()
    if chance(digits, 0.4):
        maker.add("send", topic=maker.topics[0], queueId=0, messages=[maker.message() for _ in range(2)])
    short = chance(digits, 0.15)
    if short:
        maker.add("brokerConfig", set={"longPollingEnable": False, "shortPollingTimeMills": 2000})
    maker.add("syncHoldTick")
    ids = [f"p{i}" for i in range(digits.choice([1, 2, 3, 5]))]
    for one in ids:
        kind = digits.choice([6, 6, 6, 7, 2, 3])
        topic = digits.choice([maker.topics[0], maker.light[0]]) if base == LIGHT else maker.topics[0]
        ext = maker.ext(kind) | {"topic": topic, "queueId": digits.choice([0, 0, 0, 1]), "maxMsgNums": 32}
        ext |= {"queueOffset": digits.choice([0, 0, 2, 2, 3]), "suspendTimeoutMillis": digits.choice([0, 100, 7000, 7000, 15000])}
        maker.add("pull", client=digits.choice(["c1", "c3"]), ext=ext, id=one)
        maker.add("sleep", ms=40)  # the harness does not wait for the pull to arrive
    meddle(maker, ids, 1200 if short else 3600)
    for one in ids:
        maker.add("await", id=one)
    for group in maker.groups:
        maker.add("consumerOffset", group=group, topic=maker.topics[0], queueId=0)
    return maker.scenario()


def answered(scenario: dict[str, Any], steps: list[Step]) -> dict[str, Any]:
    """The scenario without `await` of pulls that, by the results in `steps`, get no answer; the real broker gives them none either."""
    kept = [
        old
        for old, new in zip(scenario["steps"], steps, strict=True)
        if "noResponse" not in (new.get("result") or {}) or old["op"] != "await"
    ]
    return scenario | {"steps": kept}


class Rarer(Maker):
    """Makes rarer steps: messages that are sent back or late, locks, lost files, connections that close, odd requests."""

    def __init__(self, name: str, base: str, seed: int) -> None:
        super().__init__(name, base, seed)
        self.topic, self.group = self.topics[0], self.groups[0]
        self.retry, self.dead = f"%RETRY%{self.group}", f"%DLQ%{self.group}"
        ext = {"queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*"}
        self.asked = ext | {"subVersion": 1, "expressionType": "TAG", "consumerGroup": self.group}

    def pulls(self, of: str, queues: int = 1) -> None:
        for queue_id in range(queues):
            self.add("pull", client="c1", ext=self.asked | {"topic": of, "queueId": queue_id})

    def sent_back(self) -> None:
        digits = self.digits
        level, most = digits.choice([-1, -1, 0, 1]), digits.choice([16, 0, None])
        back = {"originTopic": self.topic, "queueId": 0, "queueOffset": digits.choice([0, 1, 3]), "delayLevel": level}
        self.add("sendBack", client="c2", group=self.group, maxReconsumeTimes=most, version=digits.choice([395, 100]), **back)
        self.pulls(self.dead)
        if level == 1:
            self.add("sleep", ms=1400)
        self.pulls(self.retry)

    def late(self) -> None:
        messages = [{"tags": "TagA", "props": {"DELAY": self.digits.choice(["1", "0"])}}]
        self.add("send", topic=self.topic, queueId=1, delayed=True, messages=messages, volatileHint="a queue shared with other scenarios")
        self.add("sleep", ms=1400)
        self.pulls(self.topic, 2)

    def to_retry(self) -> None:
        tried = {"tags": "TagA", "reconsumeTimes": self.digits.choice([0, 3, 16]), "maxReconsumeTimes": self.digits.choice([3, None])}
        self.add("send", topic=self.retry, queueId=0, messages=[tried | {"props": {"RETRY_TOPIC": self.topic}}])
        self.add("sleep", ms=30)  # the harness waits for the queue of the retry topic only
        self.pulls(self.retry)
        self.pulls(self.dead)

    def unknown_topic(self) -> None:
        topic = self.digits.choice([f"{self.name}New", "a b", "SCHEDULE_TOPIC_XXXX"])
        self.add("send", topic=topic, queueId=self.digits.choice([0, 3, 9]), messages=[{}])
        self.add("topicConfig", topic=f"{self.name}New")

    def lock(self) -> None:
        code, client = self.digits.choice([41, 41, 42]), self.digits.choice("AB")
        queue = f'{{"brokerName":"b","queueId":0,"topic":"{self.topic}"}}'
        body = f'{{"clientId":"{client}","consumerGroup":"{self.group}","mqSet":[{queue}]}}'
        self.add("request", client="c1", code=code, body=body)

    def check_config(self) -> None:
        text, kind = self.digits.choice([one for one in EXPRESSIONS if one[0] is not None and one[1] is not None])
        body = f'{{"clientId":"c","group":"g","subscriptionData":{{"topic":"t","subString":"{text}","expressionType":"{kind}"}}}}'
        self.add("request", client="c1", code=46, body=body)

    def close(self) -> None:
        client = self.digits.choice(["c1", "c2"])
        self.heartbeat()
        self.add("request", client=client, code=38, ext={"consumerGroup": self.group})
        self.add("disconnect", client=client)
        self.add("groupState", group=self.group)

    def replicate(self) -> None:
        self.add("storeConfig", set={"brokerRole": "SLAVE"})
        self.add("replicate", topic=self.topic, queueId=0)
        self.pulls(self.topic)
        self.add("storeConfig", set={"brokerRole": "ASYNC_MASTER"})

    def moved(self) -> None:
        self.add("pull", client="c1", ext=self.asked | {"topic": self.topic, "queueId": 0, "queueOffset": 999})
        self.add("readStored", topic="OFFSET_MOVED_EVENT", queueId=0, last=1, volatileHint="shared with other scenarios")

    def lose_log(self) -> None:
        if self.base != "B":
            return
        self.add("send", topic=self.topic, queueId=2, count=30, template={"tags": "TagA", "bodySize": self.digits.choice([9000, 20_000])})
        self.add("deleteCommitLogHead")
        for expression, kind in (("*", "TAG"), ("TagB", "TAG"), ("a > 1", "SQL92")):
            for offset in (0, 19, 29):
                where = {"topic": self.topic, "queueId": 2, "queueOffset": offset, "subscription": expression, "expressionType": kind}
                self.add("pull", client="c1", ext=self.asked | where)

    def stored(self) -> None:
        self.add("readStored", topic=self.topic, queueId=0, last=2)
        self.add("findLast", topics=[self.topic, self.retry], body=f"{self.name} 1")

    def odd_request(self) -> None:
        ext = self.asked | {"topic": self.topic, "queueId": 0}
        forms: list[dict[str, Any]] = [
            {"code": 11, "serializeType": "ROCKETMQ", "ext": ext},
            {"code": 11, "language": "PYTHON", "version": 0, "ext": ext},
            {"code": 11, "body": "ignored", "ext": ext},
            {"code": self.digits.choice([361, 4711, 1])},
        ]
        self.add("request", client="c1", **self.digits.choice(forms))


def others(name: str, base: str, seed: int) -> dict[str, Any]:
    """A scenario of rarer steps."""
    maker = Rarer(name, base, seed)
    maker.begin()
    maker.add("topic", topic=maker.topic, perm=6, readQueueNums=4, writeQueueNums=4)
    for step in maker.steps:  # the harness fails on a step without body
        step["messages"] = [one | {"body": "x"} for one in step["messages"]] if "messages" in step else None
    maker.steps = [{key: value for key, value in step.items() if value is not None} for step in maker.steps]
    messages = [maker.message() | {"body": f"{name} {i}"} for i in range(4)]
    maker.add("send", topic=maker.topic, queueId=0, messages=messages)
    actions = [maker.sent_back, maker.late, maker.to_retry, maker.unknown_topic, maker.lock, maker.check_config, maker.close]
    actions += [maker.replicate, maker.moved, maker.stored, maker.odd_request, maker.lock]
    for action in maker.digits.sample(actions, 8):
        action()
    maker.lose_log()
    return maker.scenario()
