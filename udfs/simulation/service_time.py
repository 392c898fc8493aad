"""How long a listener takes for a message, and whether it fails; other random durations.

No code of the broker. In the client a message that takes longer than consumeTimeout (15 minutes) is sent to the retry topic while the
listener still runs. This is not simulated, so no listener takes longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from store_format.compiled import bare
from store_format.made.made_values import unit
from udfs.simulation.draws import FAILURE, POISONED, SERVICE_TIME, draw
from udfs.simulation.world import FAILING, POISON, SERVICE, SERVICE_A, SERVICE_B

CONSTANT, UNIFORM, EXPONENTIAL, LOGNORMAL = range(4)
LONGEST: Final = 15 * 60 * 1_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class Takes:
    """A random duration: one of the shapes, with the two parameters of `time_taken`."""

    shape: int
    first: float
    second: float = 0.0


@bare
def time_taken(shape, a, b, stream, tries, purpose, longest):  # type: ignore[no-untyped-def]
    """Return a random duration in microseconds, `longest` at most.

    Args:
        shape: CONSTANT, UNIFORM, EXPONENTIAL or LOGNORMAL.
        a: the duration for CONSTANT, the least one for UNIFORM, the mean for EXPONENTIAL, the median for LOGNORMAL.
        b: the greatest duration for UNIFORM, the standard deviation of the logarithm for LOGNORMAL.
        stream: result of `message_stream` for the message.
        tries: how often the message was sent back before.
        purpose: purpose of the first random number; the second one has `purpose + 1`.
        longest: greatest duration, microseconds.
    """
    if shape == CONSTANT:
        taken = a
    else:
        first = unit(draw(stream, tries, purpose))
        if shape == UNIFORM:
            taken = a + (b - a) * first
        elif shape == EXPONENTIAL:
            taken = -a * math.log1p(-first)
        else:
            second = unit(draw(stream, tries, purpose + 1))
            taken = a * math.exp(b * math.sqrt(-2.0 * math.log1p(-first)) * math.cos(2.0 * math.pi * second))
    return np.int64(min(max(taken, 0.0), float(longest)))


@bare
def service_time(cfg, shares, stream, tries):  # type: ignore[no-untyped-def]
    """Return how many microseconds a listener takes for one try of a message."""
    return time_taken(cfg[SERVICE], shares[SERVICE_A], shares[SERVICE_B], stream, tries, SERVICE_TIME, LONGEST)


@bare
def fails(shares, stream, tries):  # type: ignore[no-untyped-def]
    """Return whether a listener returns RECONSUME_LATER for one try of a message: at random, or because the message always fails."""
    if shares[POISON] > 0.0 and unit(draw(stream, 0, POISONED)) < shares[POISON]:
        return True
    return shares[FAILING] > 0.0 and unit(draw(stream, tries, FAILURE)) < shares[FAILING]
