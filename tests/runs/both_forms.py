"""Both forms of a kernel: the compiled one, and the plain Python function that it was made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Form = Callable[[Any], Callable[..., Any]]


def python_of(kernel: Any) -> Any:
    """The plain Python function of a kernel, its reference."""
    return kernel.py_func


in_both_forms = pytest.mark.parametrize("form", [lambda kernel: kernel, python_of], ids=["compiled", "reference"])
