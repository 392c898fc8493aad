"""numba's compiler as this project uses it: no GIL, and a cache on disk if there is a place for one.

Executors often import the package from an archive, under a user without a home directory. numba then finds no place for its cache and
raises at import or at the first call. Here the function is compiled without a cache instead, which takes about a second.
Surprise: numba's cache compares only the file of a function with what it has. It would go on with code that has old constants and old
kernels of other modules, for example after a `git pull`. So each function's name, after which numba names its files, ends with a digest of
what the function uses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from enum import EnumType
from hashlib import blake2b
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, TypeVar, cast

import numpy as np
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
    digest = blake2b("\n".join(_used_by(cast("FunctionType", function))).encode(), digest_size=6).hexdigest()
    function.__qualname__ = f"{function.__qualname__}_{digest}"
    try:
        cached = njit(cache=True, nogil=True, **options)(function)
        folder = str(cached.stats.cache_path)
        os.makedirs(folder, exist_ok=True)
        if os.access(folder, os.W_OK):
            return cast("F", cached)
    except (RuntimeError, OSError):
        pass
    return cast("F", njit(nogil=True, **options)(function))


def _used_by(function: FunctionType) -> Iterator[str]:
    """The code of a function, and what it uses of modules: constants, and other compiled functions with what these use.

    What the function's own module defines below it is not there yet; numba looks at changes of that file itself.
    """
    code, known = function.__code__, function.__globals__
    yield code.co_code.hex()
    yield repr([constant for constant in code.co_consts if not isinstance(constant, CodeType)])
    for name in code.co_names:
        value = known.get(name)
        for used in _members(value, code.co_names) if isinstance(value, ModuleType) else [value]:
            if (kernel := getattr(used, "py_func", None)) is not None:
                yield kernel.__qualname__
            elif isinstance(used, EnumType):
                yield repr(list(used))
            elif isinstance(used, np.ndarray | np.generic):
                yield used.tobytes().hex()
            elif isinstance(used, int | float | str | bytes | tuple):
                yield f"{name} {used!r}"


def _members(module: ModuleType, names: tuple[str, ...]) -> list[Any]:
    return [vars(module)[name] for name in names if name in vars(module)]
