"""The simulator's own routes, beside those of the API: is it there, what is in flight, the bill, the script.

GET /health     {"ok": true}
GET /in-flight  {"now": n, "peak": n}
GET /log        the bill, in order of arrival; ?after=N gives the entries with a greater number
DELETE /log     start a new bill and a new peak; a log file keeps what it has
POST /script    replace the general rules and change the given settings, as YAML or JSON (script.py);
                ?plan=NAME replaces what holds for the requests of that plan alone, an empty script removes it
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.connection import Request
from simulator.messages import error_body
from simulator.replies import Reply, json_reply
from simulator.script import read_script

if TYPE_CHECKING:
    from simulator.server import Simulator


def control(simulator: Simulator, request: Request) -> Reply:
    """The reply to a request that is not for the API."""
    route = _ROUTES.get((request.method, request.path))
    if route is None:
        return json_reply(404, error_body("not_found_error", f"no route {request.method} {request.path}"))
    try:
        return json_reply(200, route(simulator, request))
    except ValueError as error:  # a ScriptError is one
        return json_reply(400, error_body("invalid_request_error", str(error)))


def _health(_: Simulator, __: Request) -> object:
    return {"ok": True}


def _in_flight(simulator: Simulator, _: Request) -> object:
    return {"now": simulator.in_flight, "peak": simulator.peak}


def _bill(simulator: Simulator, request: Request) -> object:
    return simulator.bill(after=int(request.query.get("after", ["0"])[0]))


def _new_bill(simulator: Simulator, _: Request) -> object:
    simulator.forget()
    return {"ok": True}


def _script(simulator: Simulator, request: Request) -> object:
    plans = request.query.get("plan", [])
    if request.query.keys() - {"plan"} or len(plans) > 1 or "" in plans:
        raise ValueError("POST /script takes nothing but one plan=NAME")
    simulator.follow(read_script(request.body.decode()), plan=plans[0] if plans else None)
    return {"ok": True}


_ROUTES: dict[tuple[str, str], Callable[[Simulator, Request], object]] = {
    ("GET", "/health"): _health,
    ("GET", "/in-flight"): _in_flight,
    ("GET", "/log"): _bill,
    ("DELETE", "/log"): _new_bill,
    ("POST", "/script"): _script,
}
