"""The plan of a run as it is told: events become a picture with the plan that stood when they happened."""

from __future__ import annotations

from collections.abc import Iterable

from domain.events import Event, EventType
from domain.models import Plan
from domain.picture import Picture
from store import Store


async def tell(store: Store, picture: Picture, events: Iterable[Event]) -> None:
    """Take in what happened since. Where the plan was changed, the picture goes on with the new one."""
    for event in events:
        if event.type is EventType.PLAN_CHANGED and event.number > picture.last:
            ref = str(event.data["plan_ref"])
            picture.adopt(Plan.model_validate_json(await store.artifact(ref)), event.time)
            picture.plan_ref = ref
        picture.add([event])
