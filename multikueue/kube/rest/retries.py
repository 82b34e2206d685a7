# SPDX-License-Identifier: Apache-2.0
"""When a failed request may be sent again.

A request that was never sent, or that the server did not process, may always be repeated; a read may be repeated after
any failure of the server; a write that may have been stored may not.
"""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import Final

import aiohttp

from multikueue.core.backoff import Backoff
from multikueue.kube import errors

_TRIES: Final = 4
_RETRY: Final = Backoff(base=0.1, factor=2.0, cap=5.0, jitter=0.5)
_MAX_RETRY_AFTER: Final = 10.0  # the caller decides about a longer wait


class Effect(Enum):
    """What a failed write may have done."""

    NONE = "none"
    """Nothing: the server did not receive it, asks for it again, or reports a conflict."""
    UNKNOWN = "unknown"
    """It may be stored, now or soon."""
    REFUSED = "refused"
    """Nothing, and the same write would be refused again."""


def effect_of(error: errors.ApiError | errors.Unreachable) -> Effect:
    """What a write that failed with this error may have done."""
    if isinstance(error, errors.Unreachable):
        return Effect.UNKNOWN if error.sent else Effect.NONE
    if error.status >= 500:
        return Effect.UNKNOWN
    return Effect.NONE if error.status in (401, 409, 429) else Effect.REFUSED


def unreachable(request: str, error: BaseException) -> errors.Unreachable:
    """The `Unreachable` of a transport failure."""
    # Only if the connection failed is it certain that the server did not receive the request.
    sent = not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    text = str(error) or type(error).__name__
    hung = sent and isinstance(error, TimeoutError)
    return errors.Unreachable(f"{request}: no answer: {text}", sent=sent, hung=hung)


def delay(error: errors.KubeError, *, verb: str, attempt: int, random: Random) -> float | None:
    """The seconds until the same request may be sent again; None if it must not be.

    Jittered, so that the clients of a restarting server do not reconnect at the same moment.
    """
    if attempt >= _TRIES:
        return None
    match error:
        case errors.NoCredentials():
            return None  # the caller retries; a file or plug-in need not be tried more often
        case errors.Unreachable():
            # A server that accepted the request and did not answer has used up the caller's timeout.
            again = not error.hung and (verb == "GET" or not error.sent)
            return _RETRY.delay(attempt, random) if again else None
        case errors.TooManyRequests():
            return _retry_after(error, attempt, random)
        case errors.ServiceUnavailable() | errors.ServerTimeout() | errors.InternalError() if verb == "GET":
            return _retry_after(error, attempt, random)
        case _:
            return None


def _retry_after(error: errors.ApiError, attempt: int, random: Random) -> float | None:
    after = error.retry_after
    return None if after is not None and after > _MAX_RETRY_AFTER else after or _RETRY.delay(attempt, random)
