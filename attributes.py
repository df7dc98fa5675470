"""The search attributes of a run: what Temporal's lists of workflows can be filtered by.

A server must be told of them once. The embedded one is told when it starts; `doctor` prints the command for others.
Runs work without them: whether the server has them is found out at submit, and told to the run.
"""

from __future__ import annotations

STATUS = "NightcrewStatus"
"""The state of the run, as the report names it: RUNNING, WAITING, PAUSED, then COMPLETED, DEGRADED and so on."""

PLAN = "NightcrewPlan"
"""The name of the plan."""

COST = "NightcrewCostUsd"
"""What the run has cost in US dollars, put in at its end: for filters and sorting. The report has the exact amount."""

ATTRIBUTES = {STATUS: "Keyword", PLAN: "Keyword", COST: "Double"}
"""The type of each, in Temporal's words."""
