# SPDX-License-Identifier: Apache-2.0
"""Warning events about objects that a part of the manager cannot use."""

from __future__ import annotations

from typing import Final

from manager.cache.caches import Caches
from multikueue.core.conditions import MAX_EVENT_MESSAGE, truncate_message
from multikueue.kube.runtime.events import WARNING, EventRecorder, Reference
from multikueue.kube.runtime.quarantine import Quarantined

QUARANTINED: Final = "Quarantined"
"""The reason of the event."""


class QuarantineEvents:
    """A reporter for `kube.runtime.quarantine`."""

    def __init__(self, caches: Caches, recorder: EventRecorder) -> None:
        self._caches = caches
        self._recorder = recorder

    def report(self, entry: Quarantined) -> None:
        """Record why the object cannot be used, for its owner."""
        row = self._caches.view(entry.resource).get(entry.key)
        about = Reference(
            entry.resource.api_version,
            entry.resource.kind,
            entry.key.name,
            entry.key.namespace,
            "" if row is None else row.uid,
        )
        text = f"{entry.message} (found by {entry.reader}; nothing else is affected, correct the object)"
        self._recorder.event(about, WARNING, QUARANTINED, truncate_message(text, MAX_EVENT_MESSAGE))
