# SPDX-License-Identifier: Apache-2.0
"""The two rounds of the mutations of a write: which policies and webhooks run again in the second."""

from __future__ import annotations

from typing import TypeAlias

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject

MutatorKey: TypeAlias = tuple[str, ...]
"""What tells one mutator of a write from another."""


class Rounds:
    """The rounds of the policies, or those of the webhooks, of one write."""

    def __init__(self) -> None:
        self.second = False
        self.changed = False
        """Whether the object may have changed, so that there must be a second round."""
        self._ran: set[MutatorKey] = set()
        self._due: set[MutatorKey] = set()
        self._left: JsonObject | None = None

    def begin(self, value: JsonObject | None) -> None:
        """Begin a round; if others have changed the object since the first, all that ran are due."""
        if self.second and value != self._left:
            self._require()

    def skips(self, key: MutatorKey) -> bool:
        """Whether a mutator does not run in this round."""
        return self.second and key not in self._due

    def note(self, key: MutatorKey, *, changed: bool, repeats: bool) -> None:
        """Note that a mutator ran; `repeats` if its reinvocation policy is IfNeeded."""
        if changed:
            self.require()
        if repeats:
            self._ran.add(key)

    def require(self) -> None:
        """Note a change: those that ran before it are due."""
        self.changed = True
        self._require()

    def end(self, value: JsonObject | None) -> None:
        """End a round."""
        self._left = documents.copy(value)

    def _require(self) -> None:
        self._due |= self._ran
        self._ran = set()
