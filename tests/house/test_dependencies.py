"""What an installed pullsim brings along: bounds of versions, and licences that allow any use."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib

from packaging.requirements import Requirement

from tests.truth.places import PROJECT

# the families of free licences, in the words that packages use
FREE = re.compile(r"Apache|MIT|BSD|Python Software Foundation|PSF-2\.0|Zlib|ISC", re.IGNORECASE)
COPYLEFT = re.compile(r"GPL|Affero|SSPL|Business Source|Commons Clause", re.IGNORECASE)
# its highest version is the one that numba pins
LOWEST_ALONE = {"llvmlite"}


def brought(package: str) -> set[str]:
    """The distributions that a package needs, directly or through others."""
    found: set[str] = set()
    waiting = [(package, frozenset[str]())]
    while waiting:
        name, extras = waiting.pop()
        for text in importlib.metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker and not any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                continue
            if needed.name not in found:
                found.add(needed.name)
                waiting.append((needed.name, frozenset(needed.extras)))
    return found


def licence(package: str) -> str:
    told = importlib.metadata.metadata(package)
    classifiers = [one.rpartition("::")[2] for one in told.get_all("Classifier") or () if one.startswith("License ::")]
    return "; ".join(told.get_all("License-Expression") or classifiers or told.get_all("License") or ())


def test_what_an_installation_brings_may_be_used_by_anyone() -> None:
    licences = {name: licence(name) for name in brought("pullsim")}
    assert len(licences) > 30
    assert {name: text for name, text in licences.items() if not FREE.search(text) or COPYLEFT.search(text)} == {}


def test_each_dependency_has_a_lowest_and_a_highest_version() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    open_ended = set()
    for text in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
        needed = Requirement(text)
        operators = {one.operator for one in needed.specifier}
        if not operators >= {">=", "<"} and operators != {"=="}:
            open_ended.add(needed.name)
    assert open_ended == LOWEST_ALONE
