"""Init file for spark-sql: defines tables, views and functions of a lake in a session without Python.

    spark-sql -i FILE --hivevar lake=/data/lake

Rule: tables are read as of the lake's newest commit. A version in SQL must be a literal, so the file builds each statement as a text from
the last row of `lake_version`, and executes it.
Surprise: a session keeps the versions with which it started; only a new session sees later commits.

A wheel contains the file: `hatch_build.py` writes it when the wheel is built. In a checkout, `init_file` writes it. This module and its
imports need no Spark, so that the build needs only numpy and numba.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile

from pipeline.delta.delta_sql import literal
from pipeline.schema.tables import LAKE_VERSION, TABLES, TABLES_VERSION, Table
from pipeline.sql.statements import FUNCTIONS, VIEWS, view_sql
from store_format.errors import UnusableInputError
from udfs.sql_statements import sql_statements

INIT_FILE = "init.sql"
_LAKE = "${lake}"

_HEAD = f"""\
-- Tables, views and functions of a lake for spark-sql, as of the lake's newest commit:
--   spark-sql -i FILE --hivevar lake=/data/lake
-- The lake is an absolute path or a URI. This file is generated from the views beside it, pipeline/schema and udfs: change those.
DECLARE OR REPLACE VARIABLE pullsim_tables MAP<STRING, BIGINT>;
DECLARE OR REPLACE VARIABLE pullsim_view STRING;
SET VAR pullsim_tables = (
  SELECT CASE
    WHEN coalesce(tablesVersion, 1) = {TABLES_VERSION} THEN tables
    ELSE raise_error('the tables of this lake are of version ' || tablesVersion || ', this file is for version {TABLES_VERSION}')
  END
  FROM (
    -- the column may not be there yet
    SELECT max_by(tables, version) AS tables, get_json_object(max_by(to_json(struct(*)), version), '$.tablesVersion') AS tablesVersion
    FROM delta.`{_LAKE}/lake_version`
  )
);
"""

# call of a Python function, and its replacement; the view then gives NEEDS_PYTHON as the reason for NULL
_IN_PYTHON = "coalesce(sql92_matches(w.expression, m.properties), false)"
_NOT_KNOWN = "CAST(NULL AS BOOLEAN)"


class InitFileError(UnusableInputError, ValueError):
    """The init file does not exist and cannot be written."""


def init_sql() -> str:
    """The text of the init file."""
    parts = [
        _HEAD,
        *(_table(table) for table in TABLES.values()),
        f"CREATE OR REPLACE TEMPORARY VIEW {LAKE_VERSION.name} AS SELECT * FROM delta.`{_LAKE}/{LAKE_VERSION.name}`;\n",
        *(f"{statement};\n" for statement in sql_statements()),
        *(f"{view_sql(name).rstrip()};\n".replace(_IN_PYTHON, _NOT_KNOWN) for name in (*FUNCTIONS, *VIEWS)),
    ]
    return "\n".join(parts)


def init_file() -> Path:
    """The path of the init file in the installed package or the checkout; a missing or outdated file is written first.

    Raises:
        InitFileError: the file must be written but cannot be, as in a zip or in a folder without write permission.
    """
    path = Path(str(files("pipeline").joinpath("sql", INIT_FILE)))
    text = init_sql()
    try:
        if not path.is_file() or path.read_text("utf-8") != text:
            with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{INIT_FILE}.", delete=False) as written:
                written.write(text)
            made = Path(written.name)
            made.chmod(0o644)
            made.replace(path)  # so that no other process sees an incomplete file
    except OSError as error:
        raise InitFileError(f"{path}: cannot be written ({error.strerror}); use a pullsim that is installed from a wheel") from error
    return path


def _table(table: Table) -> str:
    """The statements that define a view of a table at its committed version, or an empty view if the table was never written."""
    create = f"CREATE OR REPLACE TEMPORARY VIEW {table.name} AS SELECT"
    read = f"{create} * FROM delta.`{_LAKE}/{table.name}` VERSION AS OF "
    none = f"{create} {', '.join(f'CAST(NULL AS {column.type}) AS {column.name}' for column in table.columns)} WHERE false"
    either = f"coalesce({literal(read)} || pullsim_tables['{table.name}'], {literal(none)})"
    return f"SET VAR pullsim_view = {either};\nEXECUTE IMMEDIATE pullsim_view;\n"
