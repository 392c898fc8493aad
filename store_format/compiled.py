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
    try:
        cached = njit(cache=True, nogil=True)(function)
        folder = str(cached.stats.cache_path)
        os.makedirs(folder, exist_ok=True)
        if os.access(folder, os.W_OK):
            return cast("F", cached)
    except (RuntimeError, OSError):
        pass
    return cast("F", njit(nogil=True)(function))
