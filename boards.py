"""Reading the boards of a run: what its workers say of tasks at work. A page that did not change is not read again."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import ValidationError

from domain.board import Page
from domain.models import TaskStatus
from domain.picture import Picture
from store import Store, StoreUnavailable


class Boards:
    """The boards of one run, for one reader. They are a courtesy: what cannot be read is not there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[str, Page]] = {}

    async def tell(self, picture: Picture) -> None:
        """Add to a picture what is said of its tasks at work; without any, nobody is asked."""
        if not picture.of(TaskStatus.RUNNING):
            return
        try:
            listed = await self._store.list_pages(picture.run)
            before = self._known.keys()
            self._known = {path: known for path, known in self._known.items() if listed.get(path) == known[0]}
            for path in listed.keys() - self._known.keys():
                if (page := _read(await self._store.page(path))) is not None:
                    # A page that we see change was written just now, whatever the clock of its worker says.
                    heard = page.model_copy(update={"at": datetime.now(UTC)}) if path in before else page
                    self._known[path] = listed[path], heard
        except StoreUnavailable:
            return
        picture.hear(page for _, page in self._known.values())


def _read(content: bytes | None) -> Page | None:
    try:
        return Page.model_validate_json(content) if content else None
    except ValidationError:
        return None  # of a version that writes them otherwise
