"""Deadlines as people write them: a duration such as 6h, or a time of RFC 3339 such as 2026-12-01T08:00:00Z."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from domain import durations
from domain.models import Deadline
from domain.problems import Mistake, quoted

LONGEST = timedelta(days=14)

TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
OFFSET = r"([Zz]|[+-][0-9]{2}:[0-9]{2})"

_TIME = re.compile(f"(?P<local>{TIME}){OFFSET}?")
_STARTS_WITH_A_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")
_EXAMPLE = "such as 2026-12-01T08:00:00Z or 2026-12-01T10:00:00+02:00"


def deadline(text: str) -> Deadline:
    """What the text means, a time in UTC; `Mistake` for any other text: a time without an offset is no one moment."""
    if _STARTS_WITH_A_DATE.match(text):
        return _time(text)
    try:
        length = durations.duration(text)
    except ValueError as error:
        raise Mistake(f"{error}, or a time such as 2026-12-01T08:00:00Z") from None
    if length > LONGEST:
        raise Mistake(f"must be at most {durations.written(LONGEST)}", "or give it as a time: 2026-12-01T08:00:00Z")
    return length


def _time(text: str) -> datetime:
    found = _TIME.fullmatch(text)
    if found is None:
        raise Mistake("must be a time of RFC 3339, with seconds and offset", _probably(text) or _EXAMPLE)
    if found["local"] == text:
        utc = f"{text[:10]}T{text[11:]}Z"
        raise Mistake("is a time without an offset from UTC", f"write {utc}, or with another offset, as in +02:00")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Mistake("is a time that does not exist", _EXAMPLE) from None


def _probably(text: str) -> str | None:
    """What somebody meant who left out some of it."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return f"did you mean {quoted(time.isoformat() if time.tzinfo else f'{time.isoformat()}Z')}?"


def written(value: Deadline) -> str:
    """The deadline as a person would write it; a time in UTC."""
    if isinstance(value, timedelta):
        return durations.written(value)
    time = value.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{time.rstrip('0') if '.' in time else time}Z"
