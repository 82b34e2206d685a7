# SPDX-License-Identifier: Apache-2.0
"""How the agent retries while one of its two API servers is unreachable.

Informers use the `RECONNECT` backoff: with few watches on two servers the agent can retry about once a second, which is
also the time until it sees a mailbox that was created after its start. Single requests are retried with tenacity, whose
pauses go through anyio and whose jitter through the injected random, so that a simulation is deterministic (ADR 0015).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, TypeVar

import anyio
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from multikueue.core.backoff import Backoff
from multikueue.kube.errors import KubeError

_log = logging.getLogger(__name__)

RECONNECT: Final = Backoff(base=0.25, factor=2.0, cap=1.0, jitter=0.5)

T = TypeVar("T")


async def reconnecting(call: Callable[[], Awaitable[T]], *, what: str, random: Random) -> T:
    """The result of `call`, retried with `RECONNECT` while it raises `KubeError`."""
    return await _retry(
        call, what=what, wait=lambda state: RECONNECT.delay(state.attempt_number, random), level=logging.DEBUG
    )


async def retry_every(
    seconds: float, call: Callable[[], Awaitable[T]], *, what: str, level: int = logging.WARNING
) -> T:
    """The result of `call`, retried every `seconds` while it raises `KubeError`; each new error is logged once."""
    return await _retry(call, what=what, wait=lambda state: seconds, level=level)


async def _retry(
    call: Callable[[], Awaitable[T]], *, what: str, wait: Callable[[RetryCallState], float], level: int
) -> T:
    logged = ""

    def log(state: RetryCallState) -> None:
        nonlocal logged
        error = "" if state.outcome is None else str(state.outcome.exception())
        if error != logged:
            _log.log(level, "request failed; retrying what=%s error=%s", what, error)
            logged = error

    async def attempt() -> T:
        return await call()

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(KubeError), wait=wait, sleep=anyio.sleep, before_sleep=log, reraise=True
    )
    return await retrying(attempt)
