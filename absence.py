"""What it means that Temporal does not find something: that it is not there, or that its whole namespace is missing."""

from __future__ import annotations

from temporalio.service import RPCError, RPCStatusCode


def is_unknown(error: RPCError) -> bool:
    """Whether Temporal does not know what it was asked about. Of a namespace that is not there nobody can say."""
    return error.status is RPCStatusCode.NOT_FOUND and "namespace" not in error.message.lower()
