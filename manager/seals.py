# SPDX-License-Identifier: Apache-2.0
"""The key of the manager's seals, shared by all replicas through one Secret.

Replicas agree on the key: the first writer of the Secret wins. A lost key invalidates every seal: adoptions in progress
are requested again with `mkctl cluster recover`.
"""

from __future__ import annotations

import base64
import binascii
import logging
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Self

import orjson

from multikueue.api.constants import ADOPTS_ANNOTATION, CLUSTER_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.resource import SECRETS
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.dispatch.hub.facts import Adoption
from multikueue.dispatch.protocol import seals
from multikueue.dispatch.protocol.seals import KEY_BYTES, SEAL_FIELD, SEAL_SECRET
from multikueue.kube.errors import AlreadyExists, NotFound
from multikueue.kube.rest.client import KubeClient

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seals:
    """The key, and when it was created."""

    key: bytes
    since: datetime

    @classmethod
    def drawn(cls, clock: Clock) -> Self:
        """A key of this process alone."""
        return cls(secrets.token_bytes(KEY_BYTES), clock.now())

    @classmethod
    async def load(cls, client: KubeClient, *, namespace: str) -> Self:
        """The key in the Secret, created if missing. Raises `BadInput` for an invalid key, and `KubeError`."""
        try:
            secret = await client.get_object(SECRETS, SEAL_SECRET, namespace=namespace)
        except NotFound:
            try:
                secret = orjson.loads(await client.create(SECRETS, _new_secret(namespace), namespace=namespace))
                _log.info("seal key created secret=%s", Key(namespace, SEAL_SECRET))
            except AlreadyExists:  # by another replica
                secret = await client.get_object(SECRETS, SEAL_SECRET, namespace=namespace)
        return cls(key_of(secret), parse_time(secret["metadata"]["creationTimestamp"]))

    def adoption_of(self, obj: JsonObject | None) -> Adoption | None:
        """The remote job that a job or Workload is to adopt, as requested by a user with that right."""
        return None if obj is None else seals.sealed_adoption(self.key, obj)

    def ignored_adoption(self, obj: JsonObject) -> bool:
        """Whether it requests an adoption that is not honoured."""
        asked = ADOPTS_ANNOTATION in (obj["metadata"].get("annotations") or {})
        return asked and self.adoption_of(obj) is None

    def adoption_seal(self, *, kind: str, namespace: str, name: str, value: str) -> str:
        """The seal for the annotation with that value."""
        return seals.adoption_seal(self.key, kind=kind, namespace=namespace, name=name, value=value)

    def log_request_seal(self, *, namespace: str, name: str, spec: JsonObject) -> str:
        """The seal for a JobLogRequest. Raises `BadInput` for an invalid spec."""
        return seals.log_request_seal(self.key, namespace=namespace, name=name, spec=spec)

    def honours_log_request(self, request: JsonObject) -> bool:
        """Whether the user who created that JobLogRequest had the right to read the logs."""
        return seals.is_sealed_log_request(self.key, request)

    def mailbox_seal(self, *, namespace: str, cluster: str, uid: str = "") -> str:
        """The seal for a mailbox namespace."""
        return seals.mailbox_seal(self.key, namespace=namespace, cluster=cluster, uid=uid)

    def made_mailbox(self, namespace: JsonObject, *, cluster: str) -> bool:
        """Whether the manager made that namespace as the mailbox of the cluster."""
        return seals.is_sealed_mailbox(self.key, namespace, cluster=cluster)

    def makes_mailbox(self, namespace: JsonObject, *, cluster: str) -> bool:
        """Whether a manager created it and ended before it could confirm that."""
        return seals.is_sealed_mailbox(self.key, namespace, cluster=cluster, made=False)

    def released_mailbox(self, namespace: JsonObject) -> bool:
        """Whether it is a mailbox that the manager created, for any cluster."""
        cluster = (namespace["metadata"].get("annotations") or {}).get(CLUSTER_LABEL, "")
        return self.made_mailbox(namespace, cluster=cluster)


def key_of(secret: JsonObject) -> bytes:
    """The key in a Secret. Raises `BadInput`."""
    metadata: JsonObject = secret["metadata"]
    try:
        key = base64.b64decode((secret.get("data") or {}).get(SEAL_FIELD) or "", validate=True)
    except binascii.Error:
        key = b""
    if len(key) < KEY_BYTES:
        raise BadInput(
            f"Secret {metadata['namespace']}/{metadata['name']}: data.{SEAL_FIELD}: expected {KEY_BYTES} bytes or more,"
            f" found {len(key)}; delete the Secret to have another key made"
        )
    return key


def _new_secret(namespace: str) -> JsonObject:
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": {"name": SEAL_SECRET, "namespace": namespace},
        "type": "Opaque",
        "immutable": True,
        "data": {SEAL_FIELD: base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()},
    }
