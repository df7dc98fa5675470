"""The faults: their names, their parameters, and the errors among them. How the others look is in wire.py.

In a script: `then: {fault: NAME, ...parameters}`. `at` is the fraction of the body that is still delivered (default
0.5), `after_bytes` the same in bytes, `seconds` how long a hang lasts before the connection is closed (default: for
ever). Parameters a fault does not know are refused.

Instead of an answer, before any model has read the prompt; nothing is billed (`message`, `error_code`, `retry_after`):

    invalid_request 400     not_found 404             api_error 500 (error type api_error)
    authentication 401      request_too_large 413     bad_gateway 502 (an HTML page)
    billing 402             rate_limit 429            unavailable 503
    permission 403          spend_limit 429           gateway_timeout 504
                                                      overloaded 529

`retry_after` is sent as it is written: 30, 86400, -1, "banana"; left out, there is no such header.

On the way to the client; the input is billed, and the output made so far:

    hang_before_headers     silence (`seconds`)
    hang_after_headers      headers, then silence (`seconds`)
    hang_mid_stream         part of the answer, then silence (`at`, `after_bytes`, `seconds`)
    ping_forever            the start of a message, then pings, one every `seconds` (1)
    reset_before_headers    RST instead of a response
    reset_mid_stream        RST after part of it (`at`, `after_bytes`)
    close_mid_chunk         closed inside a chunk, or short of the announced length (`at`, `after_bytes`)
    truncate                ends as HTTP should, but too early (`at`, `after_bytes`)
    no_message_stop         all but the last event
    error_event             `event: error` after part of it (`at`, `error_type`, `message`)
    garbage_json            an event that is not JSON (`at`)
    bad_utf8                an event that is not UTF-8 (`at`)
    empty_stream            200 and no body
    html_200                200 and a proxy's page
    wrong_shape             200 and JSON that is no message
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from simulator.config import Strict
from simulator.messages import error_body
from simulator.replies import Headers, Reply, body_reply, json_reply

STATUS = {
    "invalid_request": (400, "invalid_request_error"),
    "authentication": (401, "authentication_error"),
    "billing": (402, "billing_error"),
    "permission": (403, "permission_error"),
    "not_found": (404, "not_found_error"),
    "request_too_large": (413, "request_too_large"),
    "rate_limit": (429, "rate_limit_error"),
    "spend_limit": (429, "rate_limit_error"),
    "api_error": (500, "api_error"),
    "bad_gateway": (502, "api_error"),
    "unavailable": (503, "api_error"),
    "gateway_timeout": (504, "timeout_error"),
    "overloaded": (529, "overloaded_error"),
}

_CUT = frozenset({"at", "after_bytes"})
_WIRE: dict[str, frozenset[str]] = {
    "hang_before_headers": frozenset({"seconds"}),
    "hang_after_headers": frozenset({"seconds"}),
    "hang_mid_stream": _CUT | {"seconds"},
    "ping_forever": frozenset({"seconds"}),
    "reset_before_headers": frozenset(),
    "reset_mid_stream": _CUT,
    "close_mid_chunk": _CUT,
    "truncate": _CUT,
    "no_message_stop": frozenset(),
    "error_event": frozenset({"at", "error_type", "message"}),
    "garbage_json": frozenset({"at"}),
    "bad_utf8": frozenset({"at"}),
    "empty_stream": frozenset(),
    "html_200": frozenset(),
    "wrong_shape": frozenset(),
}
PARAMETERS = {name: frozenset({"message", "error_code", "retry_after"}) for name in STATUS} | _WIRE
"""Every fault and the parameters it takes."""

PAGE = b"<html><head><title>Gateway</title></head><body><h1>Gateway</h1><script>alert(1)</script></body></html>"
"""What a proxy says. The script in it shows up any screen that renders it."""


class Fault(Strict):
    """A fault and its parameters; none when `fault` is None."""

    fault: str | None = None
    at: Annotated[float, Field(ge=0, le=1)] | None = None
    after_bytes: Annotated[int, Field(ge=0)] | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None
    message: str | None = None
    error_type: str | None = None
    error_code: str | None = None
    retry_after: int | float | str | None = None

    @model_validator(mode="after")
    def _parameters_fit(self) -> Fault:
        if self.fault is not None and self.fault not in PARAMETERS:
            raise ValueError(f"unknown fault {self.fault!r}; there are {', '.join(sorted(PARAMETERS))}")
        known = PARAMETERS[self.fault] if self.fault else frozenset()
        given = {name for name in Fault.model_fields if name != "fault" and getattr(self, name) is not None}
        if unfit := sorted(given - known):
            whose = f"fault {self.fault!r}" if self.fault else "an answer without a fault"
            raise ValueError(f"{', '.join(unfit)}: not a parameter of {whose}")
        if self.at is not None and self.after_bytes is not None:
            raise ValueError("give at or after_bytes, not both")
        return self


def refusal(fault: Fault, *, request_id: str, headers: Headers) -> Reply:
    """The error that a status fault is."""
    assert fault.fault in STATUS  # noqa: S101  the caller looked
    status, kind = STATUS[fault.fault]
    if fault.retry_after is not None:
        headers = [*headers, ("retry-after", str(fault.retry_after))]
    if fault.fault == "bad_gateway":
        return body_reply(status, PAGE, headers=headers, content_type="text/html")
    code = fault.error_code or ("enforced_spend_limit_reached" if fault.fault == "spend_limit" else None)
    text = fault.message or f"Simulated fault: {fault.fault}"
    return json_reply(status, error_body(kind, text, request_id=request_id, error_code=code), headers)
