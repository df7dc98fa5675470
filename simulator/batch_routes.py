"""The routes of message batches.

POST /v1/messages/batches              make one; a rule `when: {batch: create}` may spoil the answer, not the batch
GET  /v1/messages/batches              newest first; limit, after_id, before_id
GET  /v1/messages/batches/ID           how it stands
GET  /v1/messages/batches/ID/results   JSON Lines, once it has ended
POST /v1/messages/batches/ID/cancel    what was not worked on will not be
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from simulator.batches import Batch, read_batch
from simulator.connection import Request
from simulator.faults import STATUS, refusal
from simulator.log import Entry
from simulator.messages import error_body
from simulator.prompt import InvalidRequestError, read_prompt
from simulator.provider import MAX_BODY, decoded
from simulator.replies import Reply, body_reply, json_reply
from simulator.script import Then
from simulator.wire import spoil

if TYPE_CHECKING:
    from simulator.provider import Provider

BATCHES = "/v1/messages/batches"
MOST_LISTED = 1000


def batch_reply(provider: Provider, request: Request, entry: Entry) -> Reply:
    """The reply to a request about batches. Only the making of one is written on the bill, which `entry` is for."""
    if "x-api-key" not in request.headers and "authorization" not in request.headers:
        return _refusal(401, "authentication_error", "x-api-key header is required")
    if len(request.body) > MAX_BODY:
        return _refusal(413, "request_too_large", f"Request exceeds {MAX_BODY} bytes")
    try:
        return _route(provider, request, entry)
    except InvalidRequestError as error:
        return _refusal(400, "invalid_request_error", str(error))


def is_about_batches(request: Request) -> bool:
    """Whether this request is for us."""
    return request.path == BATCHES or request.path.startswith(BATCHES + "/")


def makes_a_batch(request: Request) -> bool:
    """Whether this request would be billed for."""
    return (request.method, request.path) == ("POST", BATCHES)


def _route(provider: Provider, request: Request, entry: Entry) -> Reply:
    base = f"http://{request.headers.get('host', '')}{BATCHES}"
    if request.path == BATCHES:
        make = makes_a_batch(request)
        return _make(provider, request, entry, base) if make else _list(provider, request, base)
    id, _, what = request.path.removeprefix(BATCHES + "/").partition("/")
    match request.method, what, provider.batches.find(id):
        case _, _, None:
            return _refusal(404, "not_found_error", f"There is no batch {id!r}")
        case "GET", "", batch:
            return json_reply(200, batch.document(base))
        case "GET", "results", batch if batch.ended:
            return _results(batch)
        case "POST", "cancel", batch:
            provider.batches.cancel(batch, datetime.now(UTC))
            return json_reply(200, batch.document(base))
        case _:
            return _refusal(404, "not_found_error", f"no route {request.method} {request.path}")


def _make(provider: Provider, request: Request, entry: Entry, base: str) -> Reply:
    requests = read_batch(decoded(request.body))
    then = _rule(provider, next(iter(requests.values())))
    entry.fault = then.fault
    if then.fault in STATUS:
        return refusal(then, request_id="req_simulated_batch", headers=[])
    batch = provider.batches.make(requests, now=time.monotonic(), at=datetime.now(UTC))
    entry.batch_id = batch.id
    return spoil(json_reply(200, batch.document(base)), then)


def _rule(provider: Provider, params: dict[str, object]) -> Then:
    """What a script says of the making; the first request tells whose batch it is."""
    try:
        return provider.scripts.next(read_prompt(params), "create")
    except InvalidRequestError:
        return Then()


def _list(provider: Provider, request: Request, base: str) -> Reply:
    given = {name: values[0] for name, values in request.query.items()}
    limit = given.get("limit", "20")
    if not limit.isdecimal() or not 1 <= int(limit) <= MOST_LISTED:
        raise InvalidRequestError(f"limit: must be 1 to {MOST_LISTED}")
    page, more = provider.batches.page(limit=int(limit), after=given.get("after_id"), before=given.get("before_id"))
    return json_reply(
        200,
        {
            "data": [batch.document(base) for batch in page],
            "has_more": more,
            "first_id": page[0].id if page else None,
            "last_id": page[-1].id if page else None,
        },
    )


def _results(batch: Batch) -> Reply:
    body = "".join(json.dumps(line) + "\n" for line in batch.lines()).encode()
    return body_reply(200, body, headers=[], content_type="application/x-jsonl")


def _refusal(status: int, kind: str, text: str) -> Reply:
    return json_reply(status, error_body(kind, text, request_id="req_simulated_batch"))
