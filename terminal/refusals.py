"""What an error of ours, or one that nobody foresaw, means for a person: a paragraph and an exit code."""

from __future__ import annotations

from temporalio.service import RPCError

from bookmarks import NoReaderName, ReaderRefused
from client import OtherPlan, SteeringRefused, UnknownRun
from heritage import HeritageRefused
from payloads import PayloadTooLarge
from runtime import CannotDo
from sealing import WrongKey
from store import StoreError, StoreUnavailable
from terminal.outcome import Exit, Refusal


def refusal_of(error: Exception, starter: str) -> Refusal:
    """What an error of ours, or one that we did not foresee, means for a person; `starter` calls the home."""
    match error:
        case UnknownRun() | OtherPlan():
            return Refusal(f"{str(error)[0].upper()}{str(error)[1:]}.", code="unknown_run", exit=Exit.WRONG)
        case PayloadTooLarge() | NoReaderName():
            code = "too_large" if isinstance(error, PayloadTooLarge) else "usage"
            return Refusal(str(error), code=code, exit=Exit.WRONG)
        case StoreUnavailable():
            message = f"{str(error)[0].upper()}{str(error)[1:]}. {starter} doctor tells what is wrong with it."
            return Refusal(message, code="store", exit=Exit.CANNOT)
        case CannotDo() | StoreError() | SteeringRefused() | HeritageRefused() | WrongKey() | ReaderRefused():
            return Refusal(str(error), code="cannot_do", exit=Exit.CANNOT)
        case RPCError():
            message = f"Temporal did not do it: {error.message}. Is this home up? See {starter} up."
            return Refusal(message, code="temporal", exit=Exit.CANNOT)
        case _:
            message = f"That went wrong in a way we did not foresee ({type(error).__name__}: {error}). "
            return Refusal(message + "--debug before the command shows where.", code="bug", exit=Exit.CANNOT)
