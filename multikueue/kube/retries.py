# SPDX-License-Identifier: Apache-2.0
"""When the same request may be sent again.

Owns the rule: only where that cannot do harm. A request that was never sent, or that the server refused to look at, may
always go again; a read may go again after any failure of the server; a write that may have happened may not.
"""

from __future__ import annotations

from random import Random
from typing import Final

import aiohttp

from multikueue.core.backoff import Backoff
from multikueue.kube import errors

_TRIES: Final = 4
_RETRY: Final = Backoff(base=0.1, factor=2.0, cap=5.0, jitter=0.5)
_MAX_RETRY_AFTER: Final = 10.0  # a longer wait is the caller's decision


def unreachable(request: str, error: BaseException) -> errors.Unreachable:
    """The error that a failure of the transport means."""
    # Only a failure to connect tells for sure that the server has not seen the request.
    sent = not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    text = str(error) or type(error).__name__
    hung = sent and isinstance(error, TimeoutError)
    return errors.Unreachable(f"{request}: no answer: {text}", sent=sent, hung=hung)


def delay(error: errors.KubeError, *, verb: str, attempt: int, random: Random) -> float | None:
    """Seconds until the same request may be sent again, or None when it must not be.

    Jittered, so that the clients that a restarting server has lost do not come back at one moment.
    """
    if attempt >= _TRIES:
        return None
    match error:
        case errors.NoCredentials():
            return None  # the caller's own pace is soon enough to look at a file or run a plug-in again
        case errors.Unreachable():
            # A server that took the request and fell silent has used up the caller's patience already.
            again = not error.hung and (verb == "GET" or not error.sent)
            return _RETRY.delay(attempt, random) if again else None
        case errors.TooManyRequests():
            asked = error.retry_after
            return None if asked is not None and asked > _MAX_RETRY_AFTER else asked or _RETRY.delay(attempt, random)
        case errors.ServiceUnavailable() | errors.ServerTimeout() | errors.InternalError() if verb == "GET":
            asked = error.retry_after
            return None if asked is not None and asked > _MAX_RETRY_AFTER else asked or _RETRY.delay(attempt, random)
        case _:
            return None
