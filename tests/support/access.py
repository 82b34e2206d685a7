# SPDX-License-Identifier: Apache-2.0
"""Answers to the question whether a user may do something, for handlers without an API server."""

from __future__ import annotations

from typing import Any

from manager.webhooks.owner_rights import OwnerRights
from multikueue.api.configuration import OwnerReferenceSettings
from multikueue.api.resource import Resource
from multikueue.core.clock import ManualClock
from multikueue.core.errors import BadInput


class NobodyMay:
    """Refuses everything."""

    async def refusal(self, user: dict[str, Any], attributes: dict[str, Any]) -> str:
        """Why that user may not."""
        return f"user {user.get('username')} may not"


class NoKinds:
    """Finds no kind."""

    async def resource(self, *, group: str, version: str, kind: str) -> Resource:
        """Raises `BadInput`."""
        raise BadInput(f"there is no {kind} in {group}/{version}")


def nobody_owns() -> OwnerRights:
    """Nobody may name an owner but the controllers of the cluster."""
    return OwnerRights(NobodyMay(), OwnerReferenceSettings(), ManualClock())
