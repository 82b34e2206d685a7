# SPDX-License-Identifier: Apache-2.0
"""Registers the visibility API on the API server, and keeps it registered while this replica leads.

An APIService refers to a Service of the manager's namespace. For a manager outside the cluster that Service is made
here, as the name of another host; otherwise it is a part of the installation, and without it nothing is registered: an
APIService that nothing serves would keep namespaces from being deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio

from manager.visibility.documents import VERSIONS
from multikueue.api.constants import VISIBILITY_GROUP
from multikueue.api.meta import JsonObject
from multikueue.api.resource import API_SERVICES, SERVICES, Resource
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.patch import apply_unless_same

_log = logging.getLogger(__name__)

SERVICE: Final = "kueue-visibility-server"
MANAGER: Final = "kueue-visibility-installer"
CHECK_SECONDS: Final = 30.0
"""How often the registration is compared."""
_HTTPS_PORT: Final = 443
_GROUP_PRIORITY: Final = 100
_FIRST_VERSION_PRIORITY: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTarget:
    """Where the API server finds the visibility API."""

    namespace: str
    host: str = ""
    """The host outside the cluster; empty: the Service selects the manager's pods."""
    port: int = _HTTPS_PORT

    def service(self) -> JsonObject:
        """The Service for a host outside the cluster."""
        return {
            "apiVersion": SERVICES.api_version,
            "kind": SERVICES.kind,
            "metadata": {"name": SERVICE, "namespace": self.namespace},
            "spec": {"type": "ExternalName", "externalName": self.host},
        }

    def api_service(self, version: str, *, ca_bundle: str, current: JsonObject | None) -> JsonObject:
        """The registration of one version."""
        unverified = ((current or {}).get("spec") or {}).get("insecureSkipTLSVerify")  # as in manifests of Kueue
        return {
            "apiVersion": API_SERVICES.api_version,
            "kind": API_SERVICES.kind,
            "metadata": {"name": f"{version}.{VISIBILITY_GROUP}"},
            "spec": {
                "group": VISIBILITY_GROUP,
                "version": version,
                "groupPriorityMinimum": _GROUP_PRIORITY,
                "versionPriority": _FIRST_VERSION_PRIORITY - VERSIONS.index(version),
                "service": {"name": SERVICE, "namespace": self.namespace, "port": self.port},
                "caBundle": ca_bundle,
                **({"insecureSkipTLSVerify": False} if unverified else {}),
            },
        }


class VisibilityRegistration:
    """Keeps the APIServices as they should be."""

    def __init__(self, client: KubeClient, target: ServiceTarget, *, ca_bundle: Callable[[], str]) -> None:
        """`ca_bundle` is asked each time, since the certificate may have been renewed."""
        self._client = client
        self._target = target
        self._ca_bundle = ca_bundle
        self._logged = ""

    async def run(self) -> None:
        """Register now and again when it was changed, until cancelled; a failure is logged once."""
        while True:
            try:
                problem = await self._register()
            except KubeError as error:
                problem = str(error)
            if problem and problem != self._logged:
                _log.error("visibility API not registered retry_after=%.0f reason=%s", CHECK_SECONDS, problem)
            self._logged = problem
            await anyio.sleep(CHECK_SECONDS)

    async def _register(self) -> str:
        """Why it cannot be registered; empty if it is."""
        target = self._target
        found = await self._get(SERVICES, SERVICE, namespace=target.namespace)
        if target.host:
            await apply_unless_same(self._client, SERVICES, target.service(), current=found, manager=MANAGER)
        elif found is None:
            return f"Service {target.namespace}/{SERVICE} does not exist"
        for version in VERSIONS:
            current = await self._get(API_SERVICES, f"{version}.{VISIBILITY_GROUP}")
            wanted = target.api_service(version, ca_bundle=self._ca_bundle(), current=current)
            if await apply_unless_same(self._client, API_SERVICES, wanted, current=current, manager=MANAGER):
                _log.info("visibility API registered apiservice=%s", wanted["metadata"]["name"])
        return ""

    async def _get(self, resource: Resource, name: str, *, namespace: str | None = None) -> JsonObject | None:
        try:
            return await self._client.get_object(resource, name, namespace=namespace)
        except NotFound:
            return None
