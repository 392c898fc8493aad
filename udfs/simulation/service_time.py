"""How long a listener takes with a message, and whether it fails.

No code of the broker. A listener that takes longer than consumeTimeout (15 minutes) loses its message to the retry topic while it is still
at work; that is left out here, and no listener takes longer.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from store_format.compiled import bare
from store_format.made_values import unit
from udfs.simulation.draws import FAILURE, POISONED, SERVICE_FIRST, SERVICE_SECOND, draw
from udfs.simulation.world import FAILING, POISON, SERVICE, SERVICE_A, SERVICE_B

CONSTANT, UNIFORM, EXPONENTIAL, LOGNORMAL = range(4)
SHAPES: Final = ("constant", "uniform", "exponential", "lognormal")
LONGEST: Final = 15 * 60 * 1_000_000  # microseconds


@bare
def service_time(cfg, shares, stream, tries):  # type: ignore[no-untyped-def]
    """Microseconds that a listener takes with one try of a message.

    `shares` has the time for CONSTANT, the least and greatest for UNIFORM, the mean for EXPONENTIAL; the median and the standard deviation
    of the logarithm for LOGNORMAL.
    """
    shape, a, b = cfg[SERVICE], shares[SERVICE_A], shares[SERVICE_B]
    if shape == CONSTANT:
        taken = a
    else:
        first = unit(draw(stream, tries, SERVICE_FIRST))
        if shape == UNIFORM:
            taken = a + (b - a) * first
        elif shape == EXPONENTIAL:
            taken = -a * math.log1p(-first)
        else:
            second = unit(draw(stream, tries, SERVICE_SECOND))
            taken = a * math.exp(b * math.sqrt(-2.0 * math.log1p(-first)) * math.cos(2.0 * math.pi * second))
    return np.int64(min(max(taken, 0.0), float(LONGEST)))


@bare
def fails(shares, stream, tries):  # type: ignore[no-untyped-def]
    """Whether a listener gives RECONSUME_LATER for one try of a message: by bad luck, or because the message always fails."""
    if shares[POISON] > 0.0 and unit(draw(stream, 0, POISONED)) < shares[POISON]:
        return True
    return shares[FAILING] > 0.0 and unit(draw(stream, tries, FAILURE)) < shares[FAILING]
