"""numba's compiler as this project uses it: no GIL, and a cache on disk if there is a place for one.

Executors often import the package from an archive, under a user without a home directory. numba then finds no place for its cache and
raises at import or at the first call. Here the function is compiled without a cache instead, which takes about a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])
_BARE: Final = {"forceinline": True, "_nrt": False}


def compiled(function: F) -> F:
    """Compile `function` at its first call; the result's `py_func` is the plain Python function, the reference for tests."""
    return _compiled(function, {})


def bare(function: F) -> F:
    """Compile `function` as `compiled` does, but inline it in each caller and without counting references to arrays.

    For the parts of a loop over many arrays: reference counting made the loop take 25 times as long, calls without inlining 3 times.
    `function` must make no array; numba refuses one that does.
    """
    return _compiled(function, _BARE)


def inner(function: F) -> F:
    """Compile `function` as `bare` does, for callers that are compiled only: a call from Python ends the process.

    Without the entry point for Python, which unpacks every array of a large tuple, the loop of simulations compiles in two thirds of the
    time.
    """
    return _compiled(function, _BARE | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True})


def _compiled(function: F, options: dict[str, Any]) -> F:
    try:
        cached = njit(cache=True, nogil=True, **options)(function)
        folder = str(cached.stats.cache_path)
        os.makedirs(folder, exist_ok=True)
        if os.access(folder, os.W_OK):
            return cast("F", cached)
    except (RuntimeError, OSError):
        pass
    return cast("F", njit(nogil=True, **options)(function))
