"""The rules of the house that no linter knows: which way imports point, who may use Spark and the clock, how long functions may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.truth.places import PROJECT, tracked

PACKAGES = ("store_format", "udfs", "pipeline", "pullsim")
INWARD = {package: set(PACKAGES[: place + 1]) for place, package in enumerate(PACKAGES)}
# the rooms of each package, the lowest first: a room imports only rooms that stand before it; a module beside the rooms counts as a room
FLOORS = {
    "store_format": (
        "errors broker_version layout compiled store_paths big_endian files timer record java config log queue index remoting made store"
    ),
    "udfs": "sql_definition java cleaning filters pull broker version_rules consumer simulation sql_statements sql_kernels sql_functions",
    "pipeline": (
        "schema sql files settings serving requests store delta tasks lake embedded rows generate lag report importing export replay"
        " terminal progress_line verify capture listings scenarios questions upgrade simulation stream pace follow worker_daemon"
        " commands main docpages"
    ),
    "pullsim": "rows shown session request_frames lake",
}
# llvmlite is the part of numba that writes code
OUTSIDE = {"store_format": {"numpy", "numba", "llvmlite"}, "udfs": {"numpy", "numba", "lark"}}
SPARK_SIDE = {"pyspark", "pandas", "py4j", "delta", "pyarrow"}
FUNCTION_LINES = 70
COMPILED = {"bare", "compiled", "inner", "njit", "jit", "vectorize"}
CLOCKS = {
    *(f"datetime.{name}" for name in ("now", "utcnow", "today")),
    *(f"time.{name}" for name in ("time", "time_ns", "localtime", "gmtime")),
    "date.today",
    "os.times",
}
SQL_CLOCKS = {"current_timestamp", "current_date", "localtimestamp", "now", "curdate", "unix_timestamp"}


def modules(*packages: str) -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and path.relative_to(PROJECT).parts[0] in packages]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a module, which most tests here look at."""
    return tuple(ast.walk(tree))


def place(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def package(path: Path) -> str:
    return path.relative_to(PROJECT).parts[0]


OURS = modules(*PACKAGES)
ALL_PYTHON = [path for path in tracked() if path.suffix == ".py"]


def imported(tree: ast.Module) -> Iterator[str]:
    """The top-level packages that a module imports, anywhere in it."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            assert node.module is not None
            yield node.module.partition(".")[0]


def test_imports_point_inward_only() -> None:
    ours = {*PACKAGES, "tests", "benchmarks", "notebooks"}
    outward = {place(path): set(imported(tree_of(path))) & ours - INWARD[package(path)] for path in OURS}
    assert {where: names for where, names in outward.items() if names} == {}


def room(name: str) -> tuple[str, str] | None:
    """Package and room of a dotted module name; None for a package itself and for names of others."""
    package, _, rest = name.partition(".")
    return (package, rest.partition(".")[0]) if package in PACKAGES and rest else None


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """The dotted names that a module imports, anywhere in it; both a and a.b for `from a import b`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def climbing(name: str, tree: ast.Module) -> list[str]:
    """The rooms that a module imports from its own package, and that are not on a floor below its room."""
    mine = room(name)
    if mine is None:
        return []
    package, own = mine
    below = FLOORS[package].split()[: FLOORS[package].split().index(own)]
    rooms = {other for found in imported_modules(tree) if (other := room(found)) is not None and other[0] == package}
    return sorted(other for _, other in rooms if other != own and other not in below)


def test_a_room_imports_only_rooms_on_lower_floors() -> None:
    names = {".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__"): path for path in OURS}
    found = {name: climbing(name, tree_of(path)) for name, path in names.items()}
    assert {name: rooms for name, rooms in found.items() if rooms} == {}
    stand = {place for name in names if (place := room(name)) is not None}
    assert stand == {(package, one) for package, rooms in FLOORS.items() for one in rooms.split()}


def test_an_import_that_climbs_is_found() -> None:
    tree = ast.parse("from pipeline.lake.lake import Lake\nfrom pipeline import terminal\nfrom pipeline.schema import tables")
    assert climbing("pipeline.rows.log_batches", tree) == ["terminal"]


def test_no_test_imports_another_test() -> None:
    importing = {place(path) for path in modules("tests") for name in imported_modules(tree_of(path)) if ".test_" in f".{name}"}
    assert importing == set()


def test_the_inner_packages_need_numpy_and_numba_only() -> None:
    for path in modules("store_format", "udfs"):
        allowed = OUTSIDE[package(path)] | INWARD[package(path)] | sys.stdlib_module_names
        if place(path) == "udfs/sql_functions.py":
            allowed |= {"pyspark", "pandas"}
        if place(path) == "udfs/consumer/message_body.py":  # inside a function: LZ4 and zstd
            allowed |= {"pyarrow"}
        assert set(imported(tree_of(path))) <= allowed, place(path)


def test_the_inner_packages_run_without_spark() -> None:
    names = [".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in modules("store_format", "udfs")]
    names = [name.removesuffix(".__init__") for name in names if name != "udfs.sql_functions"]
    assert len(names) > 10
    script = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(sorted({SPARK_SIDE!r} & {{name.partition('.')[0] for name in sys.modules}}))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (run.stdout.strip(), run.stderr) == ("[]", "")


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_functions_are_short() -> None:
    long = {}
    for path in ALL_PYTHON:
        for function in functions(tree_of(path)):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > FUNCTION_LINES:
                long[f"{place(path)}: {function.name}"] = lines
    assert long == {}


def test_a_module_begins_by_saying_what_it_is() -> None:
    assert [place(path) for path in ALL_PYTHON if not ast.get_docstring(tree_of(path))] == []


def decorators(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    calls = [node.func if isinstance(node, ast.Call) else node for node in function.decorator_list]
    return {ast.unparse(node).rpartition(".")[2] for node in calls}


def public_functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Public functions, and public methods of public classes; whether each takes self or cls."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node, False
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
                    yield method, "staticmethod" not in decorators(method)


def annotated(function: ast.FunctionDef | ast.AsyncFunctionDef, *, bound: bool) -> bool:
    given = function.args
    parameters = [*given.posonlyargs, *given.args][bound:] + given.kwonlyargs
    parameters += [one for one in (given.vararg, given.kwarg) if one is not None]
    return function.returns is not None and all(parameter.annotation is not None for parameter in parameters)


def test_public_functions_say_what_they_take_and_give() -> None:
    silent = []
    for path in OURS:
        for function, bound in public_functions(tree_of(path)):
            if not decorators(function) & COMPILED and not annotated(function, bound=bound):
                silent.append(f"{place(path)}: {function.name}")
    assert silent == []


def names_used(tree: ast.Module) -> Iterator[str]:
    """The attributes and plain names in a tree, one for each use."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


BEHIND_SPARK_CONNECT = {
    "sparkContext",
    "SparkContext",
    "_sc",
    "_jvm",
    "_jsc",
    "_jdf",
    "_jc",
    "_jsparkSession",
    "_jconf",
    "_gateway",
    "rdd",
    "parallelize",
    "accumulator",
}
FUNCTIONS_MODULE = {"F", "functions", "sf"}  # F.broadcast is the join hint


def below_dataframes(tree: ast.Module) -> set[str]:
    """The names that a module uses and that Spark Connect lacks."""
    found = set(names_used(tree)) & BEHIND_SPARK_CONNECT
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and node.attr == "broadcast" and ast.unparse(node.value) not in FUNCTIONS_MODULE:
            found.add(ast.unparse(node))
    return found


# the modules above store_format that read or write bytes by position -> the format, which is none of the broker's
READ_BYTES = {
    "pipeline/capture/packets.py": "the headers of a pcap file, in either order of bytes",
    "pipeline/capture/pcapng.py": "the blocks of a pcapng file, in the order of bytes of their section",
    "pipeline/capture/segments.py": "the headers of Ethernet, IPv4 and TCP",
    "pipeline/lake/driver_start.py": "the first bytes of the JVM's archive of classes",
}
NUMBERS_OF_BYTES = {"from_bytes", "to_bytes"}


def reads_bytes(tree: ast.Module) -> set[str]:
    """The names that a module uses to turn bytes into numbers or numbers into bytes."""
    return {name for name in imported(tree) if name == "struct"} | (set(names_used(tree)) & NUMBERS_OF_BYTES)


def test_the_formats_of_a_broker_are_read_in_store_format_alone() -> None:
    assert {place(path) for path in modules("pipeline") if reads_bytes(tree_of(path))} == set(READ_BYTES)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import struct\nstruct.unpack('>i', raw)", {"struct"}),
        ("from struct import Struct", {"struct"}),
        ("int.from_bytes(raw, 'big')", {"from_bytes"}),
        ("list(map(int.from_bytes, parts))\n(1).to_bytes(4, 'big')", {"from_bytes", "to_bytes"}),
        ("F.struct('a')\nraw.tobytes()", set()),
    ],
)
def test_who_reads_bytes_is_found(source: str, found: set[str]) -> None:
    assert reads_bytes(ast.parse(source)) == found


SESSION_MODULE = "pipeline/lake/session.py"


def test_only_the_session_module_goes_below_dataframes() -> None:
    below = {place(path): below_dataframes(tree_of(path)) for path in modules("udfs", "pipeline")}
    assert [where for where, names in below.items() if names] == [SESSION_MODULE]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("spark.sparkContext.broadcast(x)", {"sparkContext", "spark.sparkContext.broadcast"}),
        ("sc.broadcast(x)", {"sc.broadcast"}),
        ("frame.rdd.map(f)", {"rdd"}),
        ("spark._jvm.java", {"_jvm"}),
        ("frame.join(F.broadcast(small))", set()),
    ],
)
def test_what_lies_below_dataframes_is_found(source: str, found: set[str]) -> None:
    assert below_dataframes(ast.parse(source)) == found


def test_only_the_session_module_builds_a_session() -> None:
    builders = {name: [place(path) for path in ALL_PYTHON if name in names_used(tree_of(path))] for name in ("getOrCreate", "newSession")}
    # a module of tests may keep its views in a session of the same JVM
    assert builders == {"getOrCreate": [SESSION_MODULE], "newSession": ["tests/runs/in_session.py"]}


def may_tell_the_time(path: Path) -> bool:
    return re.fullmatch(r"pipeline/(main|commands/new_run)\.py", place(path)) is not None


def clocks_read(tree: ast.Module) -> set[str]:
    """The wall clocks that a module reads; also those that it imports by name, and those of Spark's functions."""
    modules_as = {"dt": "datetime", "datetime": "datetime"}
    found = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            found |= {f"{modules_as.get(owner, owner)}.{node.attr}"} & CLOCKS
            found |= {node.attr} & SQL_CLOCKS if owner in FUNCTIONS_MODULE else set()
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} & CLOCKS
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(re.findall(r"\b(\w+)\(\)", node.value.lower())) & SQL_CLOCKS
    return found


def test_time_is_a_value_below_the_command_line() -> None:
    told = {place(path): clocks_read(tree_of(path)) for path in OURS if not may_tell_the_time(path)}
    assert {where: clocks for where, clocks in told.items() if clocks} == {}
    queries = [path for path in tracked() if path.suffix == ".sql"]
    assert [place(path) for path in queries if re.search(r"current_(timestamp|date)|\bnow\(", path.read_text(), re.IGNORECASE)] == []


@pytest.mark.parametrize(
    ("source", "clocks"),
    [
        ("import datetime as dt\ndt.datetime.now(dt.UTC)", {"datetime.now"}),
        ("import time\ntime.time()", {"time.time"}),
        ("from time import time_ns", {"time.time_ns"}),
        ("F.current_timestamp()", {"current_timestamp"}),
        ("spark.sql('SELECT NOW()')", {"now"}),
        ("dt.datetime.fromtimestamp(0, dt.UTC)\ntime.sleep(1)\ntime.monotonic()", set()),
    ],
)
def test_clocks_are_found(source: str, clocks: set[str]) -> None:
    assert clocks_read(ast.parse(source)) == clocks


# put together here, so that this file does not hold them itself
PLACES = ["/" + "work/", "/" + "root/", "/" + "tmp/w"]
PACKED = {".xz", ".gz", ".zip", ".parquet", ".png", ".jar"}
TICKETS = re.compile(r"\b(?:issue|ticket|session|pull request) ?#? ?\d+\b|\bGH-\d+\b", re.IGNORECASE)


def test_no_file_tells_of_the_place_where_it_was_written() -> None:
    told = {}
    for path in tracked():
        text = "" if path.suffix in PACKED else path.read_bytes().decode("utf-8", "replace")
        if found := [one for one in PLACES if one in text] + TICKETS.findall(text):
            told[place(path)] = found
    assert told == {}
