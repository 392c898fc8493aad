"""Feeds every parser with bytes of every kind: files and frames of the real broker, damaged at random from a seed.

A parser may refuse its input with an error of REFUSALS. Any other error is a fault. So is a value that is not the same after it is encoded
and parsed again. Run as a program, this module fuzzes one group of targets for a while, or one parser for a number of inputs, with limited
memory. A file holds the current input, because a process that dies cannot report it.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import resource
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from numba.core import event

from tests.runs import fuzz_targets as ft

# bytes that a process may take beyond what it has after WARM_UP inputs
MEMORY = 1 << 30
# seconds that a target may work on one input
SLOW = 5.0
# characters that the message of a refusal may have
LONGEST_MESSAGE = 1500
SEED = 20264
# number of inputs after which all compiled code is loaded: from then on memory and time are limited
WARM_UP = 400
_NUMBERS = (0, 1, -1, 7, 8, 20, 91, 127, 128, 255, 32767, -32768, 65535, 2**31 - 1, -(2**31), 2**31 - 8, 2**63 - 1, -(2**63))


@dataclass(frozen=True, slots=True)
class Fault:
    """An input that made a target fail, and the failure."""

    target: str
    raw: bytes
    what: str

    @property
    def kind(self) -> str:
        """The place in the code that failed; another failure is named by its first word."""
        _, found, place = self.what.rpartition('\n  File "')
        return f"{self.target}: {place.splitlines()[0] if found else self.what.split()[0]}"


def damaged(digits: random.Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One of the seeds after a few random cuts, swaps and writes."""
    raw = bytearray(digits.choice(seeds))
    for _ in range(digits.choice([0, 1, 1, 1, 2, 3, 8])):
        damage(digits, raw, seeds, words)
    return bytes(raw)


def damage(digits: random.Random, raw: bytearray, seeds: Sequence[bytes], words: Sequence[bytes]) -> None:
    """Cut, swap or write some bytes of `raw`."""
    at = digits.randint(0, len(raw))
    other = digits.choice(seeds)
    start = digits.randint(0, len(other))
    chosen = digits.randrange(10)
    if chosen == 0 and at < len(raw):
        raw[at] ^= 1 << digits.randrange(8)
    elif chosen == 1 and at < len(raw):
        raw[at] = digits.choice([0, 1, 0x7F, 0x80, 0xFF, digits.randrange(256)])
    elif chosen in {2, 3}:
        width = digits.choice([2, 4, 4, 8])
        raw[at : at + width] = (digits.choice(_NUMBERS) % 2 ** (8 * width)).to_bytes(width, digits.choice(["big", "little"]))
    elif chosen == 4:
        del raw[at : at + digits.choice([1, 4, 8, digits.randint(0, len(raw))])]
    elif chosen == 5:
        raw[at:at] = raw[at : at + digits.randint(0, 200)]
    elif chosen == 6:
        raw[at:] = other[start:]
    elif chosen == 7:
        raw[at : at + digits.choice([0, 8])] = other[start : start + digits.randint(0, 100)]
    elif chosen == 8 and words:
        raw[at : at + digits.choice([0, 0, 1, 5])] = digits.choice(words) * digits.choice([1, 1, 1, 2, 300])
    else:
        raw[at : at + digits.randint(0, 64)] = digits.randbytes(digits.randint(0, 16))
    del raw[ft.LONGEST :]


def fault_of(target: str, raw: bytes, *, longest: float = float("inf")) -> Fault | None:
    """The failure of a target on an input, or None. `longest` is the time that the target may take, s, without that of numba's compiler."""
    compiling: list[float] = []
    started = time.process_time()
    try:
        with event.install_timer("numba:compile", compiling.append):
            ft.TARGETS[target].use(raw)
    except ft.REFUSALS as error:
        if not str(error).isprintable() or len(str(error)) > LONGEST_MESSAGE:
            return Fault(target, raw, f"not printable, or more than {LONGEST_MESSAGE} characters: {str(error)!r:.500}")
    except Exception:
        return Fault(target, raw, traceback.format_exc(limit=-6))
    took = time.process_time() - started - sum(compiling)
    return Fault(target, raw, f"took {took:.1f} s") if took > longest else None


def kept_inputs(targets: Sequence[str], corpus: Path) -> dict[str, list[bytes]]:
    """The inputs of a corpus, by target. As in guided_fuzzing.py, the first byte of an input chooses the target.

    An input is worth as much as a longer one that reached other code, and takes less time: the longer half is left out.
    """
    found: dict[str, list[bytes]] = {target: [] for target in targets}
    for raw in (path.read_bytes() for path in sorted(corpus.iterdir())):
        found[targets[raw[0] % len(targets)]].append(raw[1:])
    return {target: sorted(inputs, key=len)[: (len(inputs) + 1) // 2] for target, inputs in found.items()}


def rounds(
    targets: Sequence[str],
    seed: int,
    going_on: Callable[[int], bool],
    working_on: Path | None = None,
    kept: Mapping[str, list[bytes]] = MappingProxyType({}),
) -> tuple[int, list[Fault]]:
    """Fuzz some targets in turn. Returns the number of inputs, and the first fault of each kind.

    Args:
        targets: names of the targets.
        seed: seed of what is random.
        going_on: whether another input follows a number of inputs.
        working_on: file that holds the current input.
        kept: inputs by target that are damaged in place of the target's seeds.
    """
    digits = random.Random(f"{targets[0]} {seed}")
    faults: dict[str, Fault] = {}
    count = 0
    while going_on(count):
        target = targets[count % len(targets)]
        raw = damaged(digits, kept.get(target) or ft.TARGETS[target].seeds(), ft.TARGETS[target].words)
        if working_on is not None:
            working_on.write_bytes(target.encode() + b"\n" + raw)
        # the first inputs load what they need
        fault = fault_of(target, raw, longest=SLOW if count > WARM_UP else float("inf"))
        if fault is not None:
            faults.setdefault(fault.kind, fault)
        count += 1
        if working_on is not None and count == WARM_UP:
            _limit_memory()
    return count, list(faults.values())


def _limit_memory() -> None:
    taken = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, resource.RLIM_INFINITY))


def main() -> None:
    """Print the faults that were found as a JSON line."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("name", help="a group, or a parser where a corpus is given")
    asked.add_argument("seed", type=int)
    asked.add_argument("working_on", type=Path)
    asked.add_argument("--seconds", type=float, default=float("inf"))
    asked.add_argument("--inputs", type=float, default=float("inf"))
    asked.add_argument("--corpus", type=Path)
    given = asked.parse_args()
    end = time.monotonic() + given.seconds
    targets = ft.GROUPS[given.name] if given.corpus is None else ft.PARSERS[given.name]
    kept = {} if given.corpus is None else kept_inputs(targets, given.corpus)
    count, faults = rounds(targets, given.seed, lambda count: count < given.inputs and time.monotonic() < end, given.working_on, kept)
    told = [{"target": fault.target, "raw": lzma.compress(fault.raw).hex(), "what": fault.what} for fault in faults]
    print(json.dumps({"inputs": count, "faults": told}))


if __name__ == "__main__":
    main()
