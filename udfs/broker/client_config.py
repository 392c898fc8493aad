"""The check of a client's subscription before it starts.

Broker source (4.9.3): ClientManageProcessor.checkClientConfig, CheckClientRequestBody.
Rule: a TAG subscription is always accepted. An expression must compile, and enablePropertyFilter must be set.
Surprise: a client learns only from this check that its expression does not compile or its type is unknown; a pull or a heartbeat
does not report it.
"""

from __future__ import annotations

from udfs.filters.consumer_filter_manager import SQL92, is_tag_type
from udfs.filters.sql92 import Compiled, compile_expression
from udfs.pull.codes import ResponseCode


def check_subscription(
    expression_type: str | None, sub_string: str | None, *, enable_property_filter: bool, text_operators: bool = False
) -> tuple[ResponseCode, str | None]:
    """Return code and remark of the answer to the check of one subscription; `text_operators` is the value of TEXT_OPERATORS."""
    if is_tag_type(expression_type):
        return ResponseCode.SUCCESS, None
    if not enable_property_filter:
        return ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {expression_type}"
    if expression_type != SQL92 or sub_string is None:
        return ResponseCode.SUBSCRIPTION_PARSE_FAILED, None
    compiled = compile_expression(sub_string, text_operators=text_operators)
    if isinstance(compiled, Compiled):
        return ResponseCode.SUCCESS, None
    return ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(compiled)
