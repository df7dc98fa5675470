"""Who sits at this terminal: told with every change that is made from it."""

from __future__ import annotations

import getpass


def person_here() -> str:
    """The name of the person at this terminal; a container may have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "someone"
