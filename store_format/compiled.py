"""numba's compiler as this project uses it: no GIL, and a cache on disk where there is a place for one.

Executors often import the package from a zip or an archive, under a user without a home: a cache that cannot be written must cost a second
of compiling, not the job. (numba raises while a module is imported, or at the first call, where it finds no place.)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile `function` when it is first called; its `py_func` is the plain function, the reference of what it does."""
    return _compiled(function, {})


def bare(function: F) -> F:
    """As `compiled`, for the parts of a loop over many arrays: each caller gets their code, and nobody counts who refers to an array.

    Counting cost such a loop 25 times its time, passing the arrays 3 times. The function makes no array; numba refuses one that does.
    """
    return _compiled(function, {"forceinline": True, "_nrt": False})


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
