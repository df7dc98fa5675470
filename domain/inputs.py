"""What a task gets of one need: the result, its summary, or the reason why there is none."""

from __future__ import annotations

from domain.models import Input
from domain.progress import Ended


def input_of(need: str, end: Ended, *, as_summary: bool) -> Input:
    """The input that the end of a need makes. A result without a summary goes down whole: it is short, or old."""
    if as_summary and end.summary_ref is not None:
        return Input(task=need, status=end.status, ref=end.summary_ref, whole=end.ref, whole_bytes=end.size)
    return Input(task=need, status=end.status, ref=end.ref, why=end.why)
