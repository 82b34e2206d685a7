# SPDX-License-Identifier: Apache-2.0
"""The agents that the manager hosts for clusters it holds a kubeconfig of.

Owns one task for each such cluster: connect, run the agent's code until the cluster is silent for the length of its
lease, and try again after a back-off (`docs/spec/multikueue.md §1.2`, §1.4). Promises that a slow or hung cluster
holds up no other; that new credentials for the same server are taken up without the agent noticing; that with other
settings the agent begins anew; and that a cluster whose kubeconfig was taken away is left alone from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final

import anyio
from anyio.abc import TaskGroup

from manager.context import ManagerContext
from manager.dispatch.cluster_profiles import Access
from manager.dispatch.push_carrier import PushCarrier
from multikueue.api.meta import JsonObject
from multikueue.core.backoff import Backoff
from multikueue.core.errors import BadInput
from multikueue.core.timestamps import format_time
from multikueue.federation.cluster_health import LinkFacts
from multikueue.kube.client import KubeClient
from multikueue.kube.credentials import ClusterConfig
from multikueue.kube.errors import KubeError
from worker_agent.app import Agent
from worker_agent.heartbeat import Rhythm

_log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(base=5.0, factor=2.0, cap=320.0)
_ATTEMPTS: Final = 7  # the back-off grows no further after that many failures


def _connect(config: ClusterConfig, context: ManagerContext) -> KubeClient:
    return KubeClient(config, clock=context.clock, user_agent="multikueue-push")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Times of the push carrier, and how it connects; tests scale them down, and have a network of their own."""

    rhythm: Rhythm = field(default_factory=lambda: Rhythm(renew_seconds=5.0, lease_seconds=20, report_seconds=10.0))
    backoff: Backoff = _BACKOFF
    first_read_seconds: float = 60.0
    """How long reading all jobs of a cluster may take before it counts as hung."""
    connect: Callable[[ClusterConfig, ManagerContext], KubeClient] = _connect


class PushHosts:
    """All hosted agents."""

    def __init__(
        self,
        context: ManagerContext,
        carrier: PushCarrier,
        *,
        settings: PushSettings,
        changed: Callable[[str], None],
    ) -> None:
        """`changed` hears of each cluster whose link is up or down now."""
        self._context = context
        self._carrier = carrier
        self._settings = settings
        self._changed = changed
        self._hosts: dict[str, _Host] = {}
        self._tasks: TaskGroup | None = None

    def link(self, cluster: str) -> LinkFacts:
        """How the cluster is reached now."""
        host = self._hosts.get(cluster)
        return LinkFacts() if host is None else host.link

    def has(self, cluster: str) -> bool:
        """Whether there is a kubeconfig that is used for it."""
        return cluster in self._hosts

    def empty(self, cluster: str) -> bool:
        """Whether nothing on the cluster, as far as it can be reached, was made by its agent."""
        host = self._hosts.get(cluster)
        return host is None or host.agent is None or not any(jobs.assignments() for jobs in host.agent.jobs)

    def serve(self, cluster: str, access: Access, config: ClusterConfig) -> None:
        """Have an agent for the cluster that uses this kubeconfig."""
        host = self._hosts.get(cluster)
        if host is not None and host.access.digest == access.digest:
            return
        if host is not None and host.renew(access, config):
            return
        link = LinkFacts() if host is None else host.link
        if host is not None:
            host.end()
        self._hosts[cluster] = host = _Host(
            self._context, self._carrier, cluster, access, config, settings=self._settings, changed=self._changed
        )
        # Until the new way is known to work or not, the old one's loss goes on counting.
        host.link = LinkFacts() if link.connected else link
        self._start(host)

    def leave(self, cluster: str) -> None:
        """Use the cluster's kubeconfig no more. What stands in its mailbox stays there."""
        host = self._hosts.pop(cluster, None)
        if host is not None:
            host.end()

    async def run(self) -> None:
        """Host until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for host in self._hosts.values():
                self._start(host)
            await anyio.sleep_forever()

    def _start(self, host: _Host) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(host.run, name=f"push-{host.cluster}")


class _Host:
    """One hosted agent and its connection."""

    def __init__(
        self,
        context: ManagerContext,
        carrier: PushCarrier,
        cluster: str,
        access: Access,
        config: ClusterConfig,
        *,
        settings: PushSettings,
        changed: Callable[[str], None],
    ) -> None:
        self.cluster = cluster
        self.access = access
        self.link = LinkFacts()
        self.agent: Agent | None = None
        self._config = config
        self._context = context
        self._carrier = carrier
        self._settings = settings
        self._changed = changed
        self._random = Random(context.random.getrandbits(64))
        self._client: KubeClient | None = None
        self._again = anyio.Event()
        self._attempt = 0
        self._ended = False
        self._scope = anyio.CancelScope()

    def renew(self, access: Access, config: ClusterConfig) -> bool:
        """Take up other credentials for the same server; False when it is another server."""
        if _server(access) != _server(self.access):
            return False
        self.access, self._config = access, config
        self._attempt = 0
        if self._client is not None:
            self._client.use(config)
            _log.info("cluster %s: its credentials were renewed", self.cluster)
        self._again.set()
        return True

    def end(self) -> None:
        """Stop; what runs on the cluster goes on running."""
        self._ended = True
        self._scope.cancel()

    async def run(self) -> None:
        """Connect and serve until ended."""
        with self._scope:
            while not self._ended:
                self._again = anyio.Event()
                error = await self._serve()
                self._client = self.agent = None
                self._attempt += 1
                delay = self._settings.backoff.delay(min(self._attempt, _ATTEMPTS))
                self._lost(error, delay)
                with anyio.move_on_after(delay):
                    await self._again.wait()

    async def _serve(self) -> str:
        """One connection, from the first request to its loss; gives what ended it."""
        settings = self._settings
        try:
            async with settings.connect(self._config, self._context) as client:
                self._client = client
                with anyio.fail_after(settings.rhythm.lease_seconds):
                    await client.request("GET", "/readyz")
                return await self._host(client)
        except (KubeError, BadInput) as error:
            return str(error)
        except TimeoutError:
            return f"{self._config.name}: no answer within {settings.rhythm.lease_seconds} s"
        except Exception as error:
            # What breaks over one cluster, as an answer that nobody expects, must not end the others with the manager.
            _log.exception("cluster %s: its agent broke", self.cluster)
            return f"its agent broke: {_first(error)!r}"

    async def _host(self, client: KubeClient) -> str:
        context = self._context
        self.agent = agent = Agent(
            self._carrier.mailbox(self.cluster),
            client,
            cluster=self.cluster,
            origin=context.configuration.multikueue.origin,
            rhythm=self._settings.rhythm,
            frameworks=context.configuration.integrations.frameworks,
            clock=context.clock,
            random=self._random,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.run, name=f"agent-{self.cluster}")
            problem = await self._watch_over(agent)
            tasks.cancel_scope.cancel()
        return problem

    async def _watch_over(self, agent: Agent) -> str:
        with anyio.move_on_after(self._settings.first_read_seconds):
            await agent.mailbox.informer.synced.wait()
        if not agent.mailbox.informer.synced.is_set():
            return agent.problem or "its jobs could not be read in time"
        self._attempt = 0
        self.link = LinkFacts(connected=True)
        self._carrier.opened(self.cluster)
        self._changed(self.cluster)
        _log.info("cluster %s: connected", self.cluster)
        rhythm = self._settings.rhythm
        while True:
            # The first renewal is the agent's first breath: it has the length of a lease for it, as for any other.
            await anyio.sleep(rhythm.lease_seconds if not agent.heartbeat.valid() else rhythm.renew_seconds / 2)
            if not agent.heartbeat.valid():
                return agent.heartbeat.problem or "the cluster is silent"

    def _lost(self, error: str, delay: float) -> None:
        now = self._context.clock.now()
        since = self.link.lost_since
        if since is None:
            silent = self._settings.rhythm.lease_seconds if self.link.connected else 0
            since = now - timedelta(seconds=silent)
            _log.warning("cluster %s: lost: %s", self.cluster, error)
        moment = format_time(now + timedelta(seconds=delay))
        message = f"{error}; connection attempts: {self._attempt}, next connection attempt: {moment}"
        self.link = LinkFacts(lost_since=since, message=message)
        self._changed(self.cluster)


def _first(error: BaseException) -> BaseException:
    """The fault itself, out of the groups that task groups put it in."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _server(access: Access) -> object:
    """What of a kubeconfig says which server it is, and not who we are there."""
    kubeconfig = access.kubeconfig
    chosen = kubeconfig.get("current-context")
    context: JsonObject = _named(kubeconfig["contexts"], chosen).get("context") or {}
    return _named(kubeconfig["clusters"], context.get("cluster")).get("cluster")


def _named(entries: list[JsonObject], name: object) -> JsonObject:
    return next((entry for entry in entries if entry.get("name") == name), {})
