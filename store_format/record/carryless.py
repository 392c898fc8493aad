"""The inner loop of a CRC-32 by carry-less multiplication, an instruction of x86-64 processors since 2010.

The bytes are a polynomial over GF(2). Multiplying its first 128 bits by x^n mod P and adding the product to the 128 bits that follow n bits
later does not change the remainder. So the loop folds a message into its last 128 bits, four lanes at a time. The constants are x^n mod P
for the two halves of a lane, for zlib's polynomial in reflected bit order (Gopal et al., "Fast CRC computation for generic polynomials
using PCLMULQDQ instruction", Intel, 2009).

Surprise: numba does not offer this instruction, so the loop is written as LLVM code. If the processor lacks the instruction, or numba
compiles for another processor, `AVAILABLE` is False and `folded` must not be compiled. numba's cache checks only the module that calls
`folded`: after a change here, change the modification time of that module too.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

LANE: Final = 16
LANES: Final = 4  # the processor multiplies four lanes in parallel

_BYTE, _INT, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_LONG, 2)
_OVER_LANES: Final = (0x0154442BD4, 0x01C6E41596)  # x^(512 + 32), x^(512 - 32)
_OVER_LANE: Final = (0x01751997D0, 0x00CCAA009E)  # x^(128 + 32), x^(128 - 32)


def _is_available() -> bool:
    if any(getattr(config, name) for name in ("CPU_NAME", "CPU_FEATURES")):
        return False
    try:
        return bool(binding.get_host_cpu_features().get("pclmul"))
    except RuntimeError:  # LLVM does not know the processor's features
        return False


AVAILABLE: Final = _is_available()


class _Folding:
    """Writes the LLVM code that loads lanes of 16 bytes and folds them into other lanes."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        multiply = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR, _BYTE])
        self._multiply = cgutils.get_or_insert_function(builder.module, multiply, "llvm.x86.pclmulqdq")

    def plus(self, value: Any, number: int) -> Any:
        return self.builder.add(value, ir.Constant(value.type, number))

    def load(self, address: Any) -> Any:
        lane = self.builder.load(self.builder.inttoptr(address, _VECTOR.as_pointer()))
        lane.align = 1
        return lane

    def fold(self, lane: Any, over: tuple[int, int], into: Any) -> Any:
        factors = ir.Constant(_VECTOR, [ir.Constant(_LONG, factor) for factor in over])
        low, high = (self.builder.call(self._multiply, [lane, factors, ir.Constant(_BYTE, half)]) for half in (0x00, 0x11))
        return self.builder.xor(self.builder.xor(low, high), into)


def _folded(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    address, lanes, crc = arguments
    code = _Folding(builder)
    start = builder.insert_element(ir.Constant(_VECTOR, [ir.Constant(_LONG, 0)] * 2), builder.zext(crc, _LONG), ir.Constant(_INT, 0))
    first = [code.load(code.plus(address, LANE * lane)) for lane in range(LANES)]
    sums = [cgutils.alloca_once_value(builder, lane) for lane in [builder.xor(first[0], start), *first[1:]]]
    fours = builder.udiv(lanes, ir.Constant(lanes.type, LANES))
    with cgutils.for_range(builder, code.plus(fours, -1)) as loop:
        at = builder.add(address, builder.mul(code.plus(loop.index, 1), ir.Constant(lanes.type, LANES * LANE)))
        for lane, kept in enumerate(sums):
            builder.store(code.fold(builder.load(kept), _OVER_LANES, code.load(code.plus(at, LANE * lane))), kept)
    one = builder.load(sums[0])
    for kept in sums[1:]:
        one = code.fold(one, _OVER_LANE, builder.load(kept))
    rest = cgutils.alloca_once_value(builder, one)
    done = builder.mul(fours, ir.Constant(lanes.type, LANES))
    with cgutils.for_range(builder, builder.sub(lanes, done)) as loop:
        at = builder.add(address, builder.mul(builder.add(done, loop.index), ir.Constant(lanes.type, LANE)))
        builder.store(code.fold(builder.load(rest), _OVER_LANE, code.load(at)), rest)
    halves = [builder.extract_element(builder.load(rest), ir.Constant(_INT, half)) for half in (0, 1)]
    return context.make_tuple(builder, signature.return_type, halves)


def _typed(_context: Any, _address: Any, _lanes: Any, _crc: Any) -> Any:
    return types.UniTuple(types.uint64, 2)(types.uint64, types.int64, types.uint32), _folded


# (address: np.uint64, lanes: np.int64, crc: np.uint32) -> sixteen bytes, as two np.uint64.
# The CRC of these bytes, begun with 0, is the CRC of the `lanes * 16` bytes at `address`, begun with `crc` (before its final inversion).
# `lanes` must be LANES or more. The address is not checked.
folded: Any = intrinsic(_typed)
