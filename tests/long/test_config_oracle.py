"""Config files mutated as text and as bytes, read here and by the broker's own code.

PULLSIM_MUTATED_CONFIGS is the number of texts, 20,000 by default; PULLSIM_SEED is the seed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

from store_format.config.fastjson import parse_json, plain
from store_format.config.fastjson_scanner import UnsupportedConfigError
from store_format.errors import ConfigFileError
from tests.runs.fuzz_targets import CONFIG, JSON_WORDS, config_seeds
from tests.runs.fuzzing import damaged
from tests.truth.config_decoding import DecodingBroker
from tests.truth.oracle import needs_oracle

pytestmark = needs_oracle()
TEXTS = int(os.environ.get("PULLSIM_MUTATED_CONFIGS", "20000"))
SEED = int(os.environ.get("PULLSIM_SEED", "0")) or random.SystemRandom().randrange(2**31)
# objects whose members are rows: the same ones on both sides. The broker adds the groups that it makes itself
ROWS = {"offsetTable", "topicConfigTable", "filterDataByTopic", "groupFilterData"}
OWN_GROUPS = "subscriptionGroupTable"
# a field that is computed from others, and one that is the time of the reading if the file has no version
COMPUTED = {"dead", "dataVersion"}


def difference(ours: Any, theirs: Any, path: tuple[str, ...] = ()) -> str | None:
    """The first place at which the broker read something else than we did; members that no class of the broker knows do not count."""
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return None if ours == theirs else f"{path}: {ours!r} here, {theirs!r} in the broker"
    here, there = ({str(name): value for name, value in one.items()} for one in (ours, theirs))
    if path and (path[-1] in ROWS or path[:-1] == ("offsetTable",)) and here.keys() != there.keys():
        return f"{path}: one side alone has {sorted(here.keys() ^ there.keys())}"
    for name in there.keys() - COMPUTED - (there.keys() - here.keys() if path == (OWN_GROUPS,) else set()):
        found = difference(here.get(name), there[name], (*path, name))
        if found is not None:
            return found
    return None


def test_a_mutated_config_file_says_here_what_it_says_to_the_broker(tmp_path: Path) -> None:
    digits, differ, outcomes = random.Random(SEED), [], Counter[str]()
    with DecodingBroker(tmp_path) as broker:
        for _ in range(TEXTS):
            name = digits.choice(list(CONFIG))
            seeds = config_seeds(name)()
            text = damaged(digits, seeds if digits.random() < 0.8 else [seed[:400] for seed in seeds], JSON_WORDS)
            decode, encode = CONFIG[name]
            theirs = broker.decoded(name, text)
            found = None
            try:
                table = decode(text, name)
                outcome = "read"
                if theirs is None:
                    found = "read here alone"
                elif theirs != b"null":
                    found = difference(plain(parse_json(encode(table), "ours")), plain(parse_json(theirs, "theirs")))  # type: ignore[operator]
            except UnsupportedConfigError:
                outcome = "may be read by the broker"
            except ConfigFileError:
                outcome = "refused"
                found = None if theirs is None else "read by the broker alone"
            outcomes[outcome] += 1
            if found is not None:
                differ.append((name, text, found))
    assert differ[:3] == [], f"seed {SEED}: {len(differ)} of {TEXTS}"
    assert min(outcomes.values()) > TEXTS // 50, outcomes
