"""Who cancels a run. A cancel is Temporal's own request: beside it there is room for one reason, and nothing else.

The reason is plain text in the history of the run, so it has the name alone. Any other, such as one that is typed
beside `temporal workflow cancel`, is nobody's name, and is told nowhere.
"""

from __future__ import annotations

SAID = "cancelled from Nightcrew by "
NAME_MOST = 200
"""Characters of a name: as in the inputs of updates."""


def reason_of(by: str | None) -> str:
    """What is sent along with a cancel of this person."""
    name = "".join(char if char.isprintable() else " " for char in by or "")
    name = " ".join(name.split())[:NAME_MOST].rstrip()
    return f"{SAID}{name}" if name else ""


def canceller(reason: str | None) -> str | None:
    """Who has cancelled, where the request says so: it may come from anywhere, and is looked at anew."""
    if reason is None or not reason.startswith(SAID):
        return None
    return reason.removeprefix(SAID) if reason_of(reason.removeprefix(SAID)) == reason else None
