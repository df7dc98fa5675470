"""What must be so before a new run is begun."""

from __future__ import annotations

import shutil

from checkup.folders import nearest, why_unwritable
from runtime import Settings, temporal_settings
from store import folder_of
from terminal.outcome import Exit, Refusal


def check_room(settings: Settings) -> None:
    """Refuse a run on a disk that cannot be written, or is nearly full: it would only wait there, and make it worse."""
    places = {"home": settings.home} if temporal_settings() is None else {}
    if (folder := folder_of(settings.store)) is not None:
        places["store"] = folder
    for name, place in places.items():
        if why := why_unwritable(place):
            message = f"The {name} {place} cannot be written: {why}. Mend that, or choose another. Nothing was started."
            raise Refusal(message, code="not_writable", exit=Exit.CANNOT)
        free = shutil.disk_usage(nearest(place)).free
        if free < settings.reserve_mb * 1_000_000:
            message = (
                f"Only {free / 1e6:,.0f} MB are free on the disk of the {name} ({place}), and no run is begun below "
                f"{settings.reserve_mb} (reserve_mb). Make room there: open runs go on by themselves. "
                "Nothing was started."
            )
            raise Refusal(message, code="no_room", exit=Exit.CANNOT)
