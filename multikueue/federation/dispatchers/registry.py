# SPDX-License-Identifier: Apache-2.0
"""Which dispatcher a name in the Configuration stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE, DISPATCHER_CAPACITY, DISPATCHER_INCREMENTAL
from multikueue.core.errors import BadInput
from multikueue.federation.dispatchers.all_at_once import all_at_once
from multikueue.federation.dispatchers.capacity import capacity
from multikueue.federation.dispatchers.external import external
from multikueue.federation.dispatchers.incremental import incremental
from multikueue.federation.dispatchers.protocol import Dispatcher

DISPATCHERS: Final[Mapping[str, Dispatcher]] = {
    DISPATCHER_ALL_AT_ONCE: all_at_once,
    DISPATCHER_INCREMENTAL: incremental,
    DISPATCHER_CAPACITY: capacity,
}


_RESERVED: Final = ("kueue.x-k8s.io/multikueue-dispatcher-", "multikueue.io/dispatcher-")


def dispatcher(name: str) -> Dispatcher:
    """The built-in of that name; any other name stands for a program that nominates by itself.

    Raises `BadInput` for a name of the built-ins' that is none of them: nobody would ever nominate.
    """
    if name not in DISPATCHERS and name.startswith(_RESERVED):
        known = ", ".join(sorted(DISPATCHERS))
        raise BadInput(f"multiKueue.dispatcherName: {name} is not built in; there is {known}, or a program of your own")
    return DISPATCHERS.get(name, external)
