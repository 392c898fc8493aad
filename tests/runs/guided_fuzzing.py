"""Fuzzes one parser for a number of inputs, guided by coverage: an input that reaches new Python code is kept, and is damaged further.

Run as a program: guided_fuzzing.py PARSER INPUTS SEED FOLDER. It needs atheris, which has no wheels for every machine.
FOLDER keeps the inputs that reached new code, for the next run (`corpus`), and those that made a target fail (`faults`). Each fault is a
JSON line of standard output. The first byte of an input chooses one of the parser's targets.
Kernels are not traced, because numba compiles their bytecode: they count as one step, as functions of C do.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import atheris

from tests.truth.places import PROJECT

# packages of ours and those that parse for us
_TRACED = ("store_format", "udfs", "pipeline", "dpkt", "lark")
# limits that end the whole run: seconds for one input, and memory in MiB
_TIMEOUT, _MEMORY = 120, 4096
# most inputs have at most _USUAL times the bytes of the longest seed, or _LEAST bytes if that is more; one of _LONG inputs may be longer
_USUAL, _LEAST, _LONG = 2, 1024, 64


def _with_kernels() -> Iterator[str]:
    for package in ("store_format", "udfs", "pipeline"):
        for path in (PROJECT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "numba" in text or "store_format.compiled" in text:
                yield ".".join(path.relative_to(PROJECT).with_suffix("").parts)


with atheris.instrument_imports(include=_TRACED, exclude=list(_with_kernels())):
    from tests.runs import fuzz_targets as ft
    from tests.runs import fuzzing


class GuidedFuzzer:
    """The targets of a parser, and the faults that were found."""

    def __init__(self, parser: str, folder: Path) -> None:
        """Write the seeds of the targets, which libFuzzer reads beside the inputs of earlier runs."""
        self._names = ft.PARSERS[parser]
        self._faults = folder / "faults"
        self._known: set[str] = set()
        self.folders = [folder / "corpus", folder / "seeds"]
        for one in (*self.folders, self._faults):
            one.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(self._names):
            for place, seed in enumerate(ft.TARGETS[name].seeds()):
                (self.folders[1] / f"{number}-{place}").write_bytes(bytes([number]) + seed)

    def warm_up(self) -> None:
        """Use each seed once, so that kernels are compiled before libFuzzer measures the time of inputs. libFuzzer uses the seeds again."""
        for name in self._names:
            for seed in ft.TARGETS[name].seeds():
                fuzzing.fault_of(name, seed)

    def use(self, raw: bytes) -> None:
        """Give an input to its target; print and keep the first fault of each kind."""
        if not raw:
            return
        name, content = self._names[raw[0] % len(self._names)], raw[1:]
        fault = fuzzing.fault_of(name, content, longest=fuzzing.SLOW)
        if fault is None or fault.kind in self._known:
            return
        self._known.add(fault.kind)
        path = self._faults / f"{name.replace(' ', '-')}-{hashlib.sha256(content).hexdigest()[:12]}"
        path.write_bytes(content)
        print(json.dumps({"target": name, "file": str(path), "what": fault.what}), flush=True)

    def changed(self, raw: bytes, longest: int, seed: int) -> bytes:
        """An input after a change: by libFuzzer, or by the damage that files of a broker suffer."""
        digits = random.Random(seed)
        head, content = raw[:1] or b"\0", raw[1:]
        target = ft.TARGETS[self._names[head[0] % len(self._names)]]
        seeds = target.seeds()
        if digits.randrange(_LONG):
            longest = min(longest, max(_USUAL * max(map(len, seeds)), _LEAST))
            content = content[:longest]
        if digits.random() < 0.5:
            return head + bytes(atheris.Mutate(content, longest - 1))
        damaged = bytearray(content)
        for _ in range(digits.choice([1, 1, 2, 3])):
            fuzzing.damage(digits, damaged, seeds, target.words)
        return (head + bytes(damaged))[:longest]


def main(parser: str, inputs: str, seed: str, folder: str) -> NoReturn:
    """Give a parser a number of inputs; ends the process."""
    fuzzer = GuidedFuzzer(parser, Path(folder))
    fuzzer.warm_up()
    limits = [f"-timeout={_TIMEOUT}", f"-rss_limit_mb={_MEMORY}", f"-max_len={ft.LONGEST + 1}", f"-artifact_prefix={folder}/faults/"]
    options = [f"-runs={inputs}", f"-seed={seed}", "-print_final_stats=1", *limits]
    atheris.Setup([sys.argv[0], *options, *map(str, fuzzer.folders)], fuzzer.use, custom_mutator=fuzzer.changed)
    atheris.Fuzz()
    sys.exit()


if __name__ == "__main__":
    main(*sys.argv[1:])
