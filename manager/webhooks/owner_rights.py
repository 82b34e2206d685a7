# SPDX-License-Identifier: Apache-2.0
"""Whether a user may write an owner reference that leaves an object to the quota of its owner.

Anyone who may create objects can write any owner into them, so the reference alone proves nothing. It is honoured if
its writer is a controller of Kubernetes, a user that the Configuration trusts, or may update the finalizers of the
owner: operators need that right to own objects, and the roles `edit` and `admin` of Kubernetes do not give it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

import anyio
import orjson

from manager.webhooks.access import AccessReviewer
from multikueue.api.configuration import OwnerReferenceSettings
from multikueue.api.constants import OwnerTrust
from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.clock import Clock
from multikueue.core.printable import excerpt

CONTROLLER_USER: Final = "system:kube-controller-manager"
CONTROLLER_ACCOUNTS: Final = "system:serviceaccount:kube-system:"
"""What the names of its controllers begin with if each has a service account."""
_KEPT_SECONDS: Final = 60.0
_KEPT: Final = 4096
_ANSWER_SECONDS: Final = 5.0  # the API server waits ten for the webhook


class OwnerRights:
    """Asks the API server, and remembers for a minute that a user may; a denial is never remembered."""

    def __init__(self, access: AccessReviewer, settings: OwnerReferenceSettings, clock: Clock) -> None:
        self._access = access
        self._settings = settings
        self._clock = clock
        self._allowed: OrderedDict[bytes, float] = OrderedDict()  # until when, by user and right

    def trusts(self, user: JsonObject) -> bool:
        """Whether the user may name any owner, without a review."""
        if self._settings.trust == OwnerTrust.EVERYONE:
            return True
        name = str(user.get("username") or "")
        if name == CONTROLLER_USER or name.startswith(CONTROLLER_ACCOUNTS):
            return True
        return any(fnmatchcase(name, pattern) for pattern in self._settings.trusted_users)

    async def refusal(self, user: JsonObject, *, owner: JsonObject, resource: Resource, namespace: str) -> str:
        """Why that user may not name that owner, an object of `resource`; empty if they may."""
        if self.trusts(user):
            return ""
        attributes = {
            "verb": "update",
            "group": resource.group,
            "version": resource.version,
            "resource": resource.plural,
            "subresource": "finalizers",
            "namespace": namespace,
        }
        name = str(owner.get("name") or "")
        refusal = ""
        # Rights of controllers are seldom limited to names: one answer serves all owners of a kind.
        for wanted in (attributes, {**attributes, "name": name}):
            refusal = await self._review(user, wanted)
            if not refusal:
                return ""
        right = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        return (
            f"metadata.ownerReferences: {resource.kind} {excerpt(name)}: to leave an object to the quota of its owner,"
            f" its writer needs the right to update {right}/finalizers in namespace {namespace}: {refusal}; remove the"
            " reference, or have an administrator grant that right to the controller that writes it, or name the user"
            " in integrations.ownerReferences.trustedUsers of the Configuration"
        )

    async def _review(self, user: JsonObject, attributes: Mapping[str, str]) -> str:
        key = orjson.dumps([user, dict(attributes)], option=orjson.OPT_SORT_KEYS)
        now = self._clock.monotonic()
        if self._allowed.get(key, now) > now:
            return ""
        refusal = f"cannot check within {_ANSWER_SECONDS:.0f} s whether user {excerpt(user.get('username'))} may"
        with anyio.move_on_after(_ANSWER_SECONDS):
            refusal = await self._access.refusal(user, dict(attributes))
        if not refusal:
            self._allowed[key] = now + _KEPT_SECONDS
            self._allowed.move_to_end(key)
            if len(self._allowed) > _KEPT:
                self._allowed.popitem(last=False)
        return refusal
