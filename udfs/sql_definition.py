"""SqlFunction: the SQL form of a rule, defined in the module of the rule's Python form.

Spark inlines the function into the query, so a call costs what the expression costs. Surprise: it cannot be called
inside the lambda of a higher-order function (UNSUPPORTED_FEATURE.LAMBDA_FUNCTION_WITH_SQL_UDF).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFunction:
    """A scalar function in Spark SQL.

    Attributes:
        name: name of the function in SQL.
        parameters: the parameter list as SQL text, without the brackets.
        returns: SQL type of the result.
        body: one SQL expression over the parameters; no backslashes, so that every session reads its literals alike.
        comment: one sentence for DESCRIBE FUNCTION; no quotes and no semicolons.
    """

    name: str
    parameters: str
    returns: str
    body: str
    comment: str

    @property
    def statement(self) -> str:
        """Return the statement that defines the function for a session, replacing any function of this name."""
        return (
            f"CREATE OR REPLACE TEMPORARY FUNCTION {self.name}({self.parameters}) RETURNS {self.returns}\n"
            f"COMMENT '{self.comment}'\nRETURN {self.body}"
        )
