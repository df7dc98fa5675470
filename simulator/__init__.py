"""The other side of the wire: an HTTP server that stands in for the Messages API.

It knows nothing of plans or workflows. It answers, limits, delays, fails as it is scripted to, and keeps the bill:
the ground truth of what was really paid for.
"""

from simulator.config import Config, Limits
from simulator.log import Billed, Entry
from simulator.script import Rule
from simulator.server import Simulator

__all__ = ["Billed", "Config", "Entry", "Limits", "Rule", "Simulator"]
