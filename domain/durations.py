"""Durations as people write them: 30s, 5m, 1m30s, 2h, 1d."""

from __future__ import annotations

import re
from datetime import timedelta

PATTERN = r"(?=[0-9])([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,8}(\.[0-9]{1,3})?s)?"
"""The same for machines of other languages, in which groups have no names."""

_PARTS = re.compile(
    r"(?:(?P<days>[0-9]{1,6})d)?(?:(?P<hours>[0-9]{1,6})h)?(?:(?P<minutes>[0-9]{1,6})m)?"
    r"(?:(?P<seconds>[0-9]{1,8}(?:\.[0-9]{1,3})?)s)?"
)


def duration(text: str) -> timedelta:
    """The duration that a text such as '1m30s' means; ValueError for any other text, and for no time at all."""
    parts = _PARTS.fullmatch(text)
    if parts is None or not text:
        raise ValueError("must be a duration such as 30s, 5m, 1m30s, 2h or 1d")
    length = timedelta(**{unit: float(amount) for unit, amount in parts.groupdict().items() if amount is not None})
    if not length:
        raise ValueError("must be longer than 0s")
    return length


def written(length: timedelta) -> str:
    """The shortest text that means this duration: the inverse of `duration`, to the millisecond."""
    seconds, rest = divmod(length, timedelta(seconds=1))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    thousandths = f".{rest // timedelta(milliseconds=1):03d}".rstrip("0") if rest else ""
    parts = [(str(days), "d"), (str(hours), "h"), (str(minutes), "m"), (f"{seconds}{thousandths}", "s")]
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount != "0") or "0s"
