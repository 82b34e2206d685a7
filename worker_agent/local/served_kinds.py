# SPDX-License-Identifier: Apache-2.0
"""One job kind of the agent: followed while its resource is installed on the worker.

Promises that a kind whose CustomResourceDefinition or rights are missing delays no other kind, and that it is served
once they are there. The built-in kinds of Kubernetes are always installed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import anyio

from multikueue.api.resource import JOBS, Resource
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.kube.errors import KubeError, NotFound
from multikueue.kube.rest.client import KubeClient
from worker_agent.local.jobs import RemoteJobs
from worker_agent.local.rights import Rights

_log = logging.getLogger(__name__)


class KindFollower:
    """The jobs of one kind, and whether this cluster can run them."""

    def __init__(
        self,
        client: KubeClient,
        jobs: RemoteJobs,
        rights: Rights,
        *,
        changed: Callable[[], None],
        seconds: float,
    ) -> None:
        """`changed` is called when the kind is served from now on, or no longer.

        Every `seconds` it is looked whether its CustomResourceDefinition was installed or removed.
        """
        self.jobs = jobs
        self.decided = anyio.Event()
        """Set once its jobs were read, or cannot be while those of other kinds can."""
        self._client = client
        self._rights = rights
        self._changed = changed
        self._seconds = seconds

    @property
    def resource(self) -> Resource:
        """Its resource."""
        return self.jobs.integration.resource

    @property
    def is_served(self) -> bool:
        """Whether jobs of this kind can be sent here."""
        return not self.jobs.obstacle

    async def run(self) -> None:
        """Follow the kind while it is installed, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_rights, name=f"rights-{self.resource.plural}")
            while True:
                await self._wait_until_installed()
                async with anyio.create_task_group() as following:
                    following.start_soon(self.jobs.informer.run, name=f"informer-{self.resource.plural}")
                    await self.jobs.informer.synced.wait()
                    self._decide()
                    await self._wait_until_removed()
                    following.cancel_scope.cancel()
                self.jobs.informer.forget()

    async def _wait_until_installed(self) -> None:
        waited = False
        while not await self._is_installed():
            if not waited:
                _log.warning(
                    "job kind waits for its CustomResourceDefinition framework=%s crd=%s cluster=%s",
                    self.jobs.integration.framework,
                    self.resource.qualified,
                    self._client.config.name,
                )
                self.jobs.installed, waited = False, True
                self._decide()
            await anyio.sleep(self._seconds)
        if waited:
            _log.info("CustomResourceDefinition installed crd=%s", self.resource.qualified)
        self.jobs.installed = True

    async def _wait_until_removed(self) -> None:
        while True:
            await anyio.sleep(self._seconds)
            if isinstance(self.jobs.informer.last_error, NotFound):
                return
            try:
                await self.jobs.verify_writes()
            except KubeError as error:
                _log.debug("cannot verify writes resource=%s error=%s", self.resource.qualified, error)

    async def _is_installed(self) -> bool:
        """Whether the server has the kind; a server that does not answer is left to the informer's back-off."""
        if "." not in self.resource.group:
            return True
        try:
            await self._client.list_page(self.resource, limit=1, metadata_only=True)
        except NotFound:
            return False
        except KubeError:
            return True
        return True

    async def _follow_rights(self) -> None:
        while True:
            changed = self._rights.changed
            if not self._rights.may_run(self.resource) and not self._rights.missing_required():
                self._decide()  # other kinds can be served
            await changed.wait()

    def _decide(self) -> None:
        self.decided.set()
        self._changed()


def pod_labels(integrations: Sequence[JobIntegration]) -> dict[str, str]:
    """The labels by which pods name their jobs, with the resource of these; a Job that others make comes last."""
    ordered = sorted(integrations, key=lambda each: each.resource == JOBS)
    return {each.traits.pod_label: each.resource.qualified for each in ordered if each.traits.pod_label}
