"""The response codes that the view pull_outcome names, against the broker's own."""

from __future__ import annotations

import re

from tests.truth.places import PROJECT
from udfs.pull.codes import BrokerRole, GetMessageStatus, ResponseCode
from udfs.pull.pull_result import response_code

# answers to other requests than a pull
NO_PULL = {ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.QUERY_NOT_FOUND}


def test_the_view_names_each_code_of_a_pull_and_takes_the_status_where_the_store_was_asked() -> None:
    text = (PROJECT / "pipeline" / "sql" / "pull_outcome.sql").read_text(encoding="utf-8")
    of_store = {response_code(status, offset, role, False) for status in GetMessageStatus for offset in (0, 1) for role in BrokerRole}
    [listed] = re.findall(r"recordedCode IN \(([0-9, ]+)\)", text)
    assert {int(code) for code in listed.split(",")} == of_store
    named = {int(code): name for code, name in re.findall(r"(\d+), '([A-Z_]+)'", text)}
    assert named == {int(code): code.name for code in ResponseCode if code not in of_store | NO_PULL}
