# SPDX-License-Identifier: Apache-2.0
"""A cluster: what a kubeconfig points at, with components that can be stopped, restarted and paused.

Owns the order in which components start and stop, the admin kubeconfig, and the issuing of client certificates.
Promises that `down` ends every component, also after a start that failed half-way. How a component runs (a process, a
task) is the provider's; data survives `down` until the folder is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

import anyio

from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.devcluster import kubeconfigs
from multikueue.devcluster.manifests import create_all
from multikueue.devcluster.pki import Authority

if TYPE_CHECKING:  # the client takes half a second to import, and `mkctl status` needs none
    from multikueue.kube.client import KubeClient

ADMIN_USER: Final = "multikueue-admin"
ADMIN_GROUP: Final = "system:masters"
API_SERVER: Final = "apiserver"
CONTROLLER_MANAGER: Final = "controller-manager"
SCHEDULER: Final = "scheduler"
KUBELET_CLIENT: Final = "kube-apiserver-kubelet-client"
"""The user as which the API server dials kubelets."""


class Component(Protocol):
    """One part of a cluster that can fail on its own."""

    @property
    def name(self) -> str:
        """Its name within the cluster."""

    @property
    def log(self) -> Path:
        """Where it logs."""

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended; a paused one counts as running."""

    @property
    def pid(self) -> int | None:
        """The process it runs in, if it has one of its own."""

    async def start(self) -> None:
        """Start and wait until it is ready; harmless when it runs. Raises `ComponentFailed`."""

    async def stop(self, *, grace: float = 10.0) -> None:
        """End it, by force after `grace` seconds; harmless when it has ended."""

    async def kill(self) -> None:
        """End it as a crash would."""

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers."""

    def resume(self) -> None:
        """Let it go on."""


class Cluster:
    """One local cluster. An async context manager: `up` on entry, `down` and `close` on exit."""

    def __init__(
        self,
        *,
        name: str,
        folder: Path,
        server: str,
        authority: Authority,
        components: Sequence[Component],
        manifests: Sequence[JsonObject] = (),
        closed: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        self.server = server
        self._authority = authority
        self._components = {component.name: component for component in components}
        self._manifests = manifests
        self._closed = closed

    @property
    def ca(self) -> bytes:
        """The certificate that vouches for the API server, PEM."""
        return self._authority.certificate

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def components(self) -> Mapping[str, Component]:
        """The parts, in the order in which they start."""
        return self._components

    def component(self, name: str) -> Component:
        """The part of that name. Raises `BadInput` that lists the names there are."""
        found = self._components.get(name)
        if found is None:
            raise BadInput(f"cluster {self.name} has no component {name!r}, only {', '.join(self._components)}")
        return found

    async def up(self) -> None:
        """Start every component that does not run, in order, each ready before the next.

        The manifests are created as soon as the API server answers; what is there already is left as it is.
        """
        self.write_kubeconfig()
        for component in self._components.values():
            await component.start()
            if component.name == API_SERVER and self._manifests:
                async with self.client() as client:
                    await create_all(client, self._manifests)

    async def down(self, *, grace: float = 10.0) -> None:
        """End every component, the last started first."""
        for component in reversed(self._components.values()):
            await component.stop(grace=grace)

    async def start(self, component: str) -> None:
        """Start one component and wait until it is ready."""
        await self.component(component).start()

    async def stop(self, component: str) -> None:
        """End one component."""
        await self.component(component).stop()

    async def kill(self, component: str) -> None:
        """End one component as a crash would."""
        await self.component(component).kill()

    async def restart(self, component: str) -> None:
        """End one component and start it anew, at the same address and with the same data."""
        found = self.component(component)
        await found.stop()
        await found.start()

    def pause(self, component: str) -> None:
        """Freeze one component."""
        self.component(component).pause()

    def resume(self, component: str) -> None:
        """Let a frozen component go on."""
        self.component(component).resume()

    def client(self) -> KubeClient:
        """A client with the administrator's identity; the caller enters and closes it."""
        from multikueue.kube import credentials
        from multikueue.kube.client import KubeClient

        return KubeClient(credentials.load(str(self.kubeconfig)))

    def issue_client_certificate(self, user: str, groups: Sequence[str] = ()) -> JsonObject:
        """A kubeconfig whose certificate the API server reads as this user in these groups."""
        pair = self._authority.client(user, groups=groups)
        return kubeconfigs.kubeconfig(cluster=self.name, server=self.server, ca=self.ca, user=user, pair=pair)

    def write_kubeconfig(self) -> Path:
        """Write the administrator's kubeconfig unless the folder has one for this address; return its path."""
        if not self.kubeconfig.exists() or self.server not in self.kubeconfig.read_text():
            kubeconfigs.write(self.issue_client_certificate(ADMIN_USER, [ADMIN_GROUP]), self.kubeconfig)
        return self.kubeconfig

    async def __aenter__(self) -> Self:
        try:
            await self.up()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.down(grace=0.0)
            self.close()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.down()
        self.close()

    def close(self) -> None:
        """Give back what the cluster holds beyond its components, such as its port; it cannot come up again."""
        if self._closed is not None:
            self._closed()
            self._closed = None
