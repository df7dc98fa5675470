"""What a task gets of one need: the result, its summary, the reason why there is none, or word of it alone."""

from __future__ import annotations

from domain.models import Form, Input
from domain.progress import Ended


def input_of(need: str, end: Ended, form: Form) -> Input:
    """The input that the end of a need makes. A result without a summary goes down whole: it is short, or old."""
    if form is Form.SUMMARY and end.summary_ref is not None:
        return Input(task=need, status=end.status, ref=end.summary_ref, whole=end.ref, whole_bytes=end.size)
    return Input(task=need, status=end.status, ref=None if form is Form.NAME else end.ref, why=end.why)
