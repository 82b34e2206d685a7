# SPDX-License-Identifier: Apache-2.0
"""A cluster: what a kubeconfig points at, with components that can be stopped, restarted and paused.

Owns the order in which components start and stop, the administrator's kubeconfig, and client certificates. `down` stops
every component, also after a start that failed. The provider decides how a component runs (a process, a container).
Data survives `down` until the folder is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

import anyio

from devcluster import kubeconfigs
from devcluster.manifests import create_all, split_definitions
from devcluster.pki import Authority
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput

if TYPE_CHECKING:  # the client takes half a second to import, and `mkctl status` needs none
    from multikueue.kube.rest.client import KubeClient

ADMIN_USER: Final = "multikueue-admin"
ADMIN_GROUP: Final = "system:masters"
API_SERVER: Final = "apiserver"
CONTROLLER_MANAGER: Final = "controller-manager"
SCHEDULER: Final = "scheduler"
KUBELET_CLIENT: Final = "kube-apiserver-kubelet-client"
"""The user of the API server's client certificate towards kubelets."""


class Component(Protocol):
    """One part of a cluster that can fail independently."""

    @property
    def name(self) -> str:
        """Its name within the cluster."""

    @property
    def log(self) -> Path:
        """The path of its log."""

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended; a paused component counts as running."""

    @property
    def pid(self) -> int | None:
        """The id of its process, if it runs as a separate process."""

    async def start(self) -> None:
        """Start it and wait until it is ready; no effect if it runs. Raises `ComponentFailed`."""

    async def stop(self, *, grace: float = 10.0) -> None:
        """Stop it, by force after `grace` seconds; no effect if it has ended."""

    async def kill(self) -> None:
        """Kill it, as a crash would."""

    def pause(self) -> None:
        """Freeze it: connections stay open and requests are not answered."""

    def resume(self) -> None:
        """Continue after `pause`."""


class Template(Protocol):
    """The storage of an earlier cluster with the same definitions, which a new one begins with."""

    def filled(self) -> AbstractAsyncContextManager[bool]:
        """In its body the API server starts; False if the body must create the definitions as well."""


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
        context: str = "",
        template: Template | None = None,
    ) -> None:
        """`context` is the name of the cluster in its kubeconfigs; the default is `name`."""
        self.name = name
        self.context = context or name
        self.folder = folder
        self.server = server
        self._authority = authority
        self._components = {component.name: component for component in components}
        self._manifests = manifests
        self._closed = closed
        self._template = template

    @property
    def ca(self) -> bytes:
        """The CA certificate of the API server, PEM."""
        return self._authority.certificate

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def components(self) -> Mapping[str, Component]:
        """The components by name, in start order."""
        return self._components

    def component(self, name: str) -> Component:
        """The component of that name. Raises `BadInput`, which lists the valid names."""
        found = self._components.get(name)
        if found is None:
            raise BadInput(f"cluster {self.name} has no component {name!r}, only {', '.join(self._components)}")
        return found

    async def up(self) -> None:
        """Start every component that does not run, in order, each ready before the next.

        The manifests are created as soon as the API server is ready; existing objects are not changed.
        """
        self.write_kubeconfig()
        for component in self._components.values():
            if component.name == API_SERVER:
                await self._start_api_server(component)
            else:
                await component.start()

    async def _start_api_server(self, component: Component) -> None:
        definitions, others = split_definitions(self._manifests)
        async with self._template.filled() if self._template is not None else nullcontext(False) as filled:
            await component.start()
            if definitions and not filled:
                async with self.client() as client:
                    await create_all(client, definitions)
        if others:
            async with self.client() as client:
                await create_all(client, others, defined=bool(definitions))

    async def down(self, *, grace: float = 10.0) -> None:
        """Stop every component in reverse start order."""
        for component in reversed(self._components.values()):
            await component.stop(grace=grace)

    async def start(self, component: str) -> None:
        """Start one component and wait until it is ready."""
        await self.component(component).start()

    async def stop(self, component: str) -> None:
        """Stop one component."""
        await self.component(component).stop()

    async def kill(self, component: str) -> None:
        """Kill one component, as a crash would."""
        await self.component(component).kill()

    async def restart(self, component: str) -> None:
        """Stop one component and start it again, at the same address and with the same data."""
        found = self.component(component)
        await found.stop()
        await found.start()

    def pause(self, component: str) -> None:
        """Freeze one component."""
        self.component(component).pause()

    def resume(self, component: str) -> None:
        """Continue a component after `pause`."""
        self.component(component).resume()

    def client(self) -> KubeClient:
        """A client with administrator rights; the caller enters and closes it."""
        from multikueue.kube.rest import credentials
        from multikueue.kube.rest.client import KubeClient

        return KubeClient(credentials.load(str(self.kubeconfig)))

    def issue_client_certificate(self, user: str, groups: Sequence[str] = ()) -> JsonObject:
        """A kubeconfig with a client certificate for this user and these groups."""
        pair = self._authority.client(user, groups=groups)
        return kubeconfigs.kubeconfig(cluster=self.context, server=self.server, ca=self.ca, user=user, pair=pair)

    def write_kubeconfig(self) -> Path:
        """Write the administrator's kubeconfig unless the folder has one for this address. Returns its path.

        Its cluster, context and user have the same name, so that kubeconfigs of several clusters can be merged.
        """
        if not self.kubeconfig.exists() or not self._is_current(self.kubeconfig.read_text()):
            pair = self._authority.client(ADMIN_USER, groups=[ADMIN_GROUP])
            config = kubeconfigs.kubeconfig(
                cluster=self.context, server=self.server, ca=self.ca, user=ADMIN_USER, pair=pair, context=self.context
            )
            kubeconfigs.write(config, self.kubeconfig)
        return self.kubeconfig

    def _is_current(self, written: str) -> bool:
        return self.server in written and f"user: {self.context}\n" in written

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
        """Release what the cluster holds besides its components, such as its port; it cannot start again."""
        if self._closed is not None:
            self._closed()
            self._closed = None
