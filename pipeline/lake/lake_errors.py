"""The errors about lakes. The command line loads this module each time, so the module imports no library."""

from __future__ import annotations

from collections.abc import Sequence

from store_format.errors import UnusableInputError


class LakeError(UnusableInputError, ValueError):
    """The directory is no lake, the lake lacks the wanted broker or rows, or another run is writing to it."""


class UnknownNameError(LakeError):
    """The lake has no broker, group or topic of the given name."""


class LakeConflictError(LakeError):
    """Another run is writing to the same tables."""


def require_among(root: str, name: str, names: Sequence[str]) -> None:
    """Check that a lake has a broker.

    Args:
        root: path of the lake.
        name: name of the broker.
        names: sorted names of the lake's brokers.

    Raises:
        UnknownNameError: the lake has no such broker.
    """
    if name not in names:
        raise UnknownNameError(f"{root}: expected broker {name!r}, found {', '.join(map(repr, names)) or 'none'}")
