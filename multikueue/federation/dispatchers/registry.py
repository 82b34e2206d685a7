# SPDX-License-Identifier: Apache-2.0
"""Which dispatcher a name in the Configuration stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE
from multikueue.federation.dispatchers.all_at_once import all_at_once
from multikueue.federation.dispatchers.external import external
from multikueue.federation.dispatchers.protocol import Dispatcher

DISPATCHERS: Final[Mapping[str, Dispatcher]] = {DISPATCHER_ALL_AT_ONCE: all_at_once}


def dispatcher(name: str) -> Dispatcher:
    """The built-in of that name; any other name stands for a program that nominates by itself."""
    return DISPATCHERS.get(name, external)
