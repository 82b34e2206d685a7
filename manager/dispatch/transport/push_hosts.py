# SPDX-License-Identifier: Apache-2.0
"""The agents that the manager hosts for clusters with a kubeconfig (push).

Owns one task for each such cluster: connect, run the agent's code until the cluster has not answered for the length of
its lease, and retry after a back-off (`docs/spec/multikueue.md §1.2`, §1.4). Promises that a slow or hung cluster
delays no other; that new credentials for the same server are used without a restart of the agent; that other settings
restart it; and that a cluster whose kubeconfig was removed is not used any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from manager.context import ManagerContext
from manager.dispatch.transport.cluster_profiles import JudgedKubeconfig
from manager.dispatch.transport.push_transport import PushTransport
from multikueue.api.meta import JsonObject
from multikueue.api.resource import MULTIKUEUE_CLUSTERS
from multikueue.core.backoff import Backoff
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.dispatch.hub.health import LinkFacts
from multikueue.dispatch.policy.dispatch_policy import PolicyRules, cluster_rules, hub_rules
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.errors import Forbidden, KubeError
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.credentials import ClusterConfig
from worker_agent.hub.heartbeat import AgentIntervals

if TYPE_CHECKING:
    from worker_agent.app import Agent

_log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(base=5.0, factor=2.0, cap=320.0)
_ATTEMPTS: Final = 7  # the back-off grows no further after that many failures


_MAX_ANSWER_BYTES: Final = 64 * 2**20


def _connect(config: ClusterConfig, context: ManagerContext) -> KubeClient:
    # A worker's API server may be compromised: its answers must not fill the memory of the hub's manager.
    return KubeClient(config, clock=context.clock, user_agent="multikueue-push", max_answer_bytes=_MAX_ANSWER_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Intervals of push, and how it connects; tests scale them down and use a network of their own."""

    intervals: AgentIntervals = field(
        default_factory=lambda: AgentIntervals(renew_seconds=5.0, lease_seconds=20, report_seconds=10.0)
    )
    backoff: Backoff = _BACKOFF
    first_read_seconds: float = 60.0
    """How long reading all jobs of a cluster may take before it counts as hung."""
    connect: Callable[[ClusterConfig, ManagerContext], KubeClient] = _connect


class PushHosts:
    """All hosted agents."""

    def __init__(
        self,
        context: ManagerContext,
        transport: PushTransport,
        *,
        settings: PushSettings,
        changed: Callable[[str], None],
    ) -> None:
        """`changed` is called with a cluster whose link went up or down."""
        self._context = context
        self._transport = transport
        self._settings = settings
        self._changed = changed
        self._hosts: dict[str, _Host] = {}
        self._tasks: TaskGroup | None = None

    def link(self, cluster: str) -> LinkFacts:
        """The state of the connection."""
        host = self._hosts.get(cluster)
        return LinkFacts() if host is None else host.link

    def has(self, cluster: str) -> bool:
        """Whether a kubeconfig is in use for it."""
        return cluster in self._hosts

    def empty(self, cluster: str) -> bool:
        """Whether the agent has no jobs on the cluster, as far as it can be reached."""
        host = self._hosts.get(cluster)
        return host is None or host.agent is None or not any(jobs.assignments() for jobs in host.agent.jobs)

    def serve(self, cluster: str, access: JudgedKubeconfig, config: ClusterConfig) -> None:
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
            self._context, self._transport, cluster, access, config, settings=self._settings, changed=self._changed
        )
        # Until the new connection has succeeded or failed, the loss of the old one continues.
        host.link = LinkFacts() if link.connected else link
        self._start(host)

    def leave(self, cluster: str) -> None:
        """Stop using the cluster's kubeconfig. Its mailbox is kept."""
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
            name = f"push-{host.cluster}"
            self._tasks.start_soon(self._context.supervisor.keep, "push", host.run, name=name)


class _Host:
    """One hosted agent and its connection."""

    def __init__(
        self,
        context: ManagerContext,
        transport: PushTransport,
        cluster: str,
        access: JudgedKubeconfig,
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
        self._transport = transport
        self._settings = settings
        self._changed = changed
        self._random = Random(context.random.getrandbits(64))
        self._client: KubeClient | None = None
        self._again = anyio.Event()
        self._attempt = 0
        self._ended = False
        self._scope = anyio.CancelScope()

    def renew(self, access: JudgedKubeconfig, config: ClusterConfig) -> bool:
        """Use other credentials for the same server; False when it is another server."""
        if _server(access) != _server(self.access):
            return False
        self.access, self._config = access, config
        self._attempt = 0
        if self._client is not None:
            self._client.use(config)
            if self.agent is not None:
                self.agent.rights.review_soon()
            _log.info("credentials renewed cluster=%s", self.cluster)
        self._again.set()
        return True

    def end(self) -> None:
        """Stop the agent; jobs on the cluster keep running."""
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
        """One connection, from the first request to its loss; returns the reason for its end."""
        settings = self._settings
        try:
            async with settings.connect(self._config, self._context) as client:
                self._client = client
                await self._check_ready(client)
                return await self._host(client)
        except (KubeError, BadInput) as error:
            return str(error)
        except TimeoutError:
            return f"{self._config.name}: no answer within {settings.intervals.lease_seconds} s"
        except Exception as error:
            # A failure over one cluster, such as an unexpected answer, must not end the manager and the other clusters.
            _log.exception("hosted agent failed cluster=%s", self.cluster)
            return f"the hosted agent failed: {_first(error)!r}"

    async def _host(self, client: KubeClient) -> str:
        from worker_agent.app import Agent  # 36 modules and 2 MiB that a hub of agents does not need

        context = self._context
        self.agent = agent = Agent(
            self._transport.mailbox(self.cluster),
            client,
            cluster=self.cluster,
            origin=context.configuration.multikueue.origin,
            intervals=self._settings.intervals,
            integrations=JobRegistry.configured(context.configuration).dispatched,
            clock=context.clock,
            random=self._random,
            rules=self._rules,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.run, name=f"agent-{self.cluster}")
            problem = await self._watch_over(agent, client)
            tasks.cancel_scope.cancel()
        return problem

    def _rules(self) -> tuple[PolicyRules, ...]:
        """The hosted agent follows the rules of the hub: there is no agent on the cluster that could set others."""
        cluster = self._context.caches.view(MULTIKUEUE_CLUSTERS).object(Key("", self.cluster))
        annotations = ((cluster or {}).get("metadata") or {}).get("annotations") or {}
        hub = hub_rules(self._context.configuration, namespace=self._context.namespace)
        return hub, cluster_rules(annotations)

    async def _check_ready(self, client: KubeClient) -> None:
        """Check that the cluster answers at all. Raises `KubeError` or `TimeoutError`."""
        with anyio.fail_after(self._settings.intervals.lease_seconds):
            try:
                await client.request("GET", "/readyz")
            except Forbidden:
                return  # /readyz may be forbidden; the server answers

    async def _watch_over(self, agent: Agent, client: KubeClient) -> str:
        while not agent.mailbox.informer.synced.is_set():
            with anyio.move_on_after(self._settings.first_read_seconds):
                await agent.mailbox.informer.synced.wait()
                break
            if not agent.rights.missing_required():
                return agent.problem or "its jobs could not be read in time"
            # Its report lists what is missing; with that right it continues.
            try:
                await self._check_ready(client)
            except KubeError as error:
                return str(error)
            except TimeoutError:
                return f"{self._config.name}: no answer within {self._settings.intervals.lease_seconds} s"
        self._attempt = 0
        self.link = LinkFacts(connected=True)
        self._transport.opened(self.cluster, unread=agent.unread_kinds())
        self._changed(self.cluster)
        _log.info("connected cluster=%s", self.cluster)
        intervals = self._settings.intervals
        while True:
            # The agent has one lease duration for its first renewal, as for any other.
            await anyio.sleep(intervals.lease_seconds if not agent.heartbeat.valid() else intervals.renew_seconds / 2)
            if not agent.heartbeat.valid():
                return agent.heartbeat.problem or "the cluster does not answer"
            self._transport.opened(self.cluster, unread=agent.unread_kinds())

    def _lost(self, error: str, delay: float) -> None:
        now = self._context.clock.now()
        since = self.link.lost_since
        if since is None:
            unanswered = self._settings.intervals.lease_seconds if self.link.connected else 0
            since = now - timedelta(seconds=unanswered)
            _log.warning("connection lost cluster=%s error=%s", self.cluster, error)
        moment = format_time(now + timedelta(seconds=delay))
        message = f"{error}; connection attempts: {self._attempt}, next connection attempt: {moment}"
        self.link = LinkFacts(lost_since=since, message=message)
        self._changed(self.cluster)


def _first(error: BaseException) -> BaseException:
    """The original error, out of the groups of task groups."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _server(access: JudgedKubeconfig) -> object:
    """The part of a kubeconfig that identifies the server, without the user."""
    kubeconfig = access.kubeconfig
    chosen = kubeconfig.get("current-context")
    context: JsonObject = _named(kubeconfig["contexts"], chosen).get("context") or {}
    return _named(kubeconfig["clusters"], context.get("cluster")).get("cluster")


def _named(entries: list[JsonObject], name: object) -> JsonObject:
    return next((entry for entry in entries if entry.get("name") == name), {})
