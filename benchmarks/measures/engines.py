"""The measures of both reading engines: what a user waits for, from the shell to the exit code, with DuckDB and with Spark."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import Figure, Peer, held_against, median_seconds, timed_runs
from benchmarks.made.entry_tables import write_tables
from benchmarks.measures.lag import GROUPS, LAG_OF_GROUPS, ask_duckdb
from benchmarks.measures.whole_way import run_pullsim, small_store
from benchmarks.stand import BROKER, Stand

ENTRIES = 20_000_000
_TRAFFIC = Path(__file__).parents[2] / "examples" / "traffic.pcap"


def measure_engines(stand: Stand) -> list[Figure]:
    """Seconds of lag, a count and the report of a captured broker, and of the lag of 1,000 groups over 20 million entries."""
    folder, captured, large = stand.folder, str(stand.folder / "captured"), stand.folder / "entries"
    stand.close()  # a session beside the commands would take their memory and cores
    run_pullsim("import", str(small_store(folder)), "--lake", captured, "--broker-name", BROKER)
    run_pullsim("capture", str(_TRAFFIC), "--lake", captured, "--broker", BROKER)
    version = Peer("--version", "pullsim --version", median_seconds(lambda: run_pullsim("--version"), stand.repeats), "ratio < 10")
    commands = {
        "lag": ("lag",),
        "count": ("sql", "SELECT count(*) FROM consume_queue"),
        "report": ("report", "--out", str(folder / "report.html")),
    }
    figures = []
    for name, command in commands.items():
        whole = (*command, "--lake", captured, "--engine")
        at_once = timed_runs(lambda whole=whole: run_pullsim(*whole, "duckdb"), stand.repeats)  # type: ignore[misc]
        spark = Peer("Spark", "--engine spark", median_seconds(lambda whole=whole: run_pullsim(*whole, "spark"), stand.repeats))  # type: ignore[misc]
        peers = (spark,) if name == "report" else (spark, version)
        figures += held_against(f"engines {name}", at_once, "s", *peers, target="6 s" if name == "report" else "")
    write_tables(large, entries=ENTRIES // stand.scale, groups=GROUPS)
    query = ("sql", LAG_OF_GROUPS, "--format", "csv", "--lake", str(large), "--engine", "duckdb")
    seconds = timed_runs(lambda: run_pullsim(*query), stand.repeats)
    direct = Peer("DuckDB", "DuckDB asked directly, within a process that runs", median_seconds(lambda: ask_duckdb(large), stand.repeats))
    figures += held_against("engines lag of 1,000 groups", seconds, "s", direct, target="1 s" if stand.scale == 1 else "")
    return figures
