# SPDX-License-Identifier: Apache-2.0
"""The garbage collector of a manager's process; one that has other work keeps its collector as it is.

A term is the time for which a replica leads. Its engine and caches live as long as it, so that a full collection need
not walk them.
"""

from __future__ import annotations

import gc


class TermCollector:
    """Keeps what lives as long as a term out of full collections, if the process is the manager's own."""

    __slots__ = ("_own_process",)

    def __init__(self, *, own_process: bool) -> None:
        self._own_process = own_process

    def term_begins(self) -> None:
        """Free the engine and the controllers of a former term, which were frozen."""
        if self._own_process:
            gc.unfreeze()
            gc.collect()

    def caches_filled(self) -> None:
        """Freeze the cached objects before the engine allocates: parsing them has left no garbage."""
        if self._own_process:
            gc.freeze()

    def parts_started(self) -> None:
        """Collect what starting has left, and freeze the rest."""
        if self._own_process:
            gc.collect()
            gc.freeze()
