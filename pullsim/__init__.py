"""pullsim from Python: ask a lake at once, without Spark, and replay, explain and import on Spark.

    import pullsim

    lake = pullsim.open("lake")
    lake.lag()
    lake.sql("SELECT topic, sum(lag) AS lag FROM consume_lag GROUP BY topic").pandas()

docs/python.md is the guide. `import pullsim` loads neither Spark nor pandas.
"""

from pullsim.lake import Lake, NeedsSparkError, import_store, open  # noqa: A004 (pullsim.open is the name)
from pullsim.rows import Rows
from pullsim.shown import Explained, Page
from store_format.errors import UnusableInputError as Error

__all__ = ["Error", "Explained", "Lake", "NeedsSparkError", "Page", "Rows", "import_store", "open"]
