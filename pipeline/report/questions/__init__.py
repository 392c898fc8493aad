"""The questions of the report: each module has the SQL of one question, and what the page shows of its rows."""
