"""Mutates the files of a store by a seed: bits, fields, lengths, and files that are there or not."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

# (position, bytes) of the fields of a record with hosts of 8 bytes, from the record's start
RECORD_FIELDS = ((0, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 8), (28, 8), (36, 4), (40, 8), (56, 8), (72, 4), (76, 8), (84, 4))
ENTRY_FIELDS = ((0, 8), (8, 4), (12, 8))
INDEX_FIELDS = ((0, 8), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4))
# only 5.x has the last three
CHECKPOINT_FIELDS = ((0, 8), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8))
# files that are not mutated: in config the harness itself reads the consumers' filters; only 5.x reads the others
LEFT_ALONE = ("config", "rocksdbstore", "compaction", "lock", "abort.bak")

Field = tuple[int, int]
Mutate = Callable[[Path, random.Random], str]
FieldOf = Callable[[bytearray, random.Random], Field | None]


def mutated_store(store: Path, into: Path, seed: int) -> list[str]:
    """Copy a store, and its meta file, with one to three mutations; returns a text for each mutation."""
    shutil.copytree(store, into, copy_function=shutil.copy2)
    shutil.copy2(f"{store}.meta.json", f"{into}.meta.json")
    chance = random.Random(seed)
    return [_mutate(into, chance) for _ in range(chance.choice((1, 1, 2, 3)))]


def _mutate(store: Path, chance: random.Random) -> str:
    kinds: Sequence[tuple[Mutate, int]] = (
        (_record, 30),
        (_entry, 25),
        (_index, 12),
        (_extension, 8),
        (_checkpoint, 8),
        (_any_bytes, 6),
        (_length, 5),
        (_presence, 10),
    )
    mutate = chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
    return mutate(store, chance)


def _files(store: Path, folder: str) -> list[Path]:
    """The files below a folder of the store, without those of LEFT_ALONE."""
    found = (path for path in (store / folder).rglob("*") if path.is_file()) if (store / folder).is_dir() else ()
    return sorted(path for path in found if path.relative_to(store).parts[0] not in LEFT_ALONE)


def _in_a_file(store: Path, chance: random.Random, folder: str, otherwise: Mutate, field_of: FieldOf) -> str:
    """Mutate a field of a file of a folder; if there is no file or no field, mutate something else."""
    files = _files(store, folder)
    if not files:
        return otherwise(store, chance)
    path = chance.choice(files)
    raw = bytearray(path.read_bytes())
    found = field_of(raw, chance)
    return _any_bytes(store, chance) if found is None else _write_field(path, raw, *found, chance)


def _record(store: Path, chance: random.Random) -> str:
    return _in_a_file(store, chance, "commitlog", _any_bytes, _field_of_a_record)


def _field_of_a_record(raw: bytearray, chance: random.Random) -> Field | None:
    starts, at = [], 0
    while at + 8 <= len(raw) and (size := struct.unpack_from(">i", raw, at)[0]) > 8 and at + size <= len(raw):
        starts.append(at)
        at += size
    if not starts:
        return None
    start = chance.choice((starts[-1], chance.choice(starts), chance.choice(starts), at if at + 92 < len(raw) else starts[0]))
    size = struct.unpack_from(">i", raw, start)[0]
    if chance.random() < 0.3 and size > 92:
        return start + chance.randrange(88, size), 1  # body, topic, properties, and their lengths
    place, width = chance.choice(RECORD_FIELDS)
    return start + place, width


def _entry(store: Path, chance: random.Random) -> str:
    return _in_a_file(store, chance, "consumequeue", _record, _field_of_an_entry)


def _field_of_an_entry(raw: bytearray, chance: random.Random) -> Field:
    used = max((at for at in range(0, len(raw) - 19, 20) if any(raw[at : at + 20])), default=0)
    start = chance.choice((0, used, used, min(used + 20, max(len(raw) - 20, 0)), chance.randrange(0, used + 20, 20)))
    place, width = chance.choice(ENTRY_FIELDS)
    return start + place, width


def _index(store: Path, chance: random.Random) -> str:
    return _in_a_file(store, chance, "index", _record, _field_of_an_index)


def _field_of_an_index(raw: bytearray, chance: random.Random) -> Field:
    return chance.choice((*INDEX_FIELDS, (chance.randrange(40, max(len(raw), 41)) // 4 * 4, 4)))


def _extension(store: Path, chance: random.Random) -> str:
    return _in_a_file(store, chance, "consumequeue_ext", _entry, _field_of_an_extension)


def _field_of_an_extension(raw: bytearray, chance: random.Random) -> Field:
    used = max((at for at in range(len(raw)) if raw[at]), default=0)
    return chance.randrange(0, used + 2), chance.choice((1, 2, 8))


def _checkpoint(store: Path, chance: random.Random) -> str:
    path = store / "checkpoint"
    if not path.exists():
        return _record(store, chance)
    return _write_field(path, bytearray(path.read_bytes()), *chance.choice(CHECKPOINT_FIELDS), chance)


def _any_bytes(store: Path, chance: random.Random) -> str:
    path = chance.choice([path for path in _files(store, ".") if path.stat().st_size])
    raw = bytearray(path.read_bytes())
    at = chance.randrange(len(raw))
    length = min(chance.choice((1, 4, 20, 100, 1000)), len(raw) - at)
    filled = chance.choice((b"\x00", b"\xff", chance.randbytes(1))) * length
    raw[at : at + length] = chance.choice((filled, chance.randbytes(length), bytes(raw[:length])))
    path.write_bytes(raw)
    return f"{path.relative_to(store)}: {length} bytes at {at}"


def _length(store: Path, chance: random.Random) -> str:
    path = chance.choice(_files(store, "."))
    size = path.stat().st_size
    wanted = chance.choice((0, max(size - 1, 0), size + 1, size // 2, size - size % 20 - 20 if size > 40 else 0))
    with path.open("r+b") as file:
        file.truncate(wanted)
    return f"{path.relative_to(store)}: {wanted} bytes long in place of {size}"


def _presence(store: Path, chance: random.Random) -> str:
    if chance.random() < 0.5:
        abort = store / "abort"
        if abort.exists():
            abort.unlink()
            return "abort: deleted"
        abort.touch()
        return "abort: made"
    path = chance.choice(_files(store, "."))
    path.unlink()
    return f"{path.relative_to(store)}: deleted"


def _write_field(path: Path, raw: bytearray, at: int, width: int, chance: random.Random) -> str:
    if at + width > len(raw):
        at, width = max(len(raw) - 1, 0), min(1, len(raw))
    bits = 8 * width
    was = int.from_bytes(raw[at : at + width], "big")
    near = [was + step for step in (-20, -1, 1, 20)]
    now = chance.choice((*near, was ^ (1 << chance.randrange(max(bits, 1))), 0, -1, 1 << max(bits - 1, 0), (1 << max(bits - 1, 0)) - 1))
    raw[at : at + width] = (now % (1 << bits)).to_bytes(width, "big")
    path.write_bytes(raw)
    return f"{path.parent.name}/{path.name}, byte {at}: {now} in place of {was}"
