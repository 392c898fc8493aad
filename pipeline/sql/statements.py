"""Which views and table functions a lake has, and the files of this folder that define them.

This module needs no Spark: the build of a wheel reads the statements too.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

# in the order of their dependence
VIEWS: Final = (
    "consume_lag",
    "consume_lag_by_group",
    "group_lag",
    "group_filter",
    "consume_lag_matched",
    "group_pace",
    "catch_up",
    "group_status",
    "log_file_deletion",
    "retention_risk",
    "pull_status_summary",
    "pull_outcome",
    "offset_correction",
    "pull_nothing_found",
    "filter_efficiency",
    "disk_read",
    "pull_hold",
    "hot_queue",
    "topic_size",
    "message",
    "client",
    "client_queue",
    "offset_move",
    "dead_letters",
    "open_transaction",
    "delayed_message",
    "delay_level",
    "timer_message",
    "timer_topic",
    "timer_check",
    "pop_message",
    "broker_lag",
    "group_overview",
    "topic_overview",
)
# functions that read tables; views call them
FUNCTIONS: Final = ("queue_status",)


def view_sql(name: str) -> str:
    """The statement that defines a view or function, with what each of its columns means: one file each under pipeline/sql."""
    return files("pipeline").joinpath("sql", f"{name}.sql").read_text("utf-8")
