# SPDX-License-Identifier: Apache-2.0
"""Conversion of custom resources by webhook.

Objects that already have the requested version are not sent. A failure is a 500 that names the webhook.
"""

from __future__ import annotations

from collections.abc import Sequence

from devcluster.apiserver import errors
from devcluster.apiserver.admission.hooks import HookFailed, Hooks
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.registry import versions
from devcluster.apiserver.registry.resources import ResourceType


class Converter:
    """Converts stored objects to the requested version and back."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    async def convert(self, raws: Sequence[bytes], kind: ResourceType) -> list[bytes]:
        """Stored objects in the version of `kind`. Raises `StatusError`."""
        if not versions.waits(kind):
            return [versions.present(raw, kind) for raw in raws]
        wanted = [index for index, raw in enumerate(raws) if not raw.startswith(kind.prefix)]
        found = list(raws)
        if wanted:
            values = [documents.load_object(raws[index]) for index in wanted]
            for index, value in zip(wanted, await self._call(values, kind, kind.api_version), strict=True):
                found[index] = documents.dump_object(value)
        return found

    async def inward(self, value: JsonObject, kind: ResourceType) -> JsonObject:
        """An object of the version of `kind` in the storage version. Raises `StatusError`."""
        stored = versions.storage_api_version(kind)
        if not versions.waits(kind):
            return versions.inward(value, kind, stored)
        (found,) = await self._call([value], kind, stored)
        return found

    async def _call(self, values: list[JsonObject], kind: ResourceType, api_version: str) -> list[JsonObject]:
        conversion = documents.child(kind.definition or {}, "spec", "conversion", "webhook")
        review = {
            "kind": "ConversionReview",
            "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": self._hooks.new_uid(), "desiredAPIVersion": api_version, "objects": values},
        }
        source = values[0].get("apiVersion", "")
        about = f"conversion webhook for {source}, Kind={kind.kind} failed"
        try:
            answer = await self._hooks.call(conversion.get("clientConfig", {}), review, seconds=30.0)
        except HookFailed as error:
            raise errors.internal(f"{about}: {error}") from error
        response = documents.child(answer, "response")
        result = documents.child(response, "result")
        if result.get("status") != "Success":
            raise errors.internal(f"{about}: {result.get('message', 'unknown error')}")
        found = response.get("convertedObjects")
        if not isinstance(found, list) or len(found) != len(values):
            raise errors.internal(f"{about}: expected {len(values)} converted objects")
        for before, after in zip(values, found, strict=True):
            # The webhook must not change what identifies the object.
            labels = documents.metadata(after)
            after["metadata"] = {
                **before["metadata"],
                **{k: labels[k] for k in ("labels", "annotations") if k in labels},
            }
        return found
