# SPDX-License-Identifier: Apache-2.0
"""The garbage collector of a process that is one manager and nothing else.

A term is the time for which a replica leads. Its engine and caches live as long as it, so that a full collection need
not walk them.
"""

from __future__ import annotations

import gc


class TermCollector:
    """Keeps what lives as long as a term out of full collections."""

    __slots__ = ()

    def term_begins(self) -> None:
        """Free the engine and the controllers of a former term, which were frozen."""
        gc.unfreeze()
        gc.collect()

    def caches_filled(self) -> None:
        """Freeze the cached objects before the engine allocates: parsing them has left no garbage."""
        gc.freeze()

    def parts_started(self) -> None:
        """Collect what starting has left, and freeze the rest."""
        gc.collect()
        gc.freeze()
