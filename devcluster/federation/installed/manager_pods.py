# SPDX-License-Identifier: Apache-2.0
"""Runs the pods of the manager's Deployment on one cluster as local processes.

Acts as the kubelet of one node: reads the ConfigMap of the pod's volume, starts the manager, reports readiness,
restarts it with back-off, and stops it when the pod is deleted. A manager that rejects its configuration shows
CrashLoopBackOff with its error message. No process outlives `run`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import anyio
from anyio.abc import TaskGroup

from devcluster.cluster import Cluster
from devcluster.errors import ComponentFailed
from devcluster.federation import roles
from devcluster.federation.installed import objects
from devcluster.federation.installed.pod_report import ProcessEnd, ProcessReport, pod_status
from devcluster.ports import PortRegistry
from devcluster.processes.forkserver import ForkServer
from devcluster.processes.process import Process
from multikueue.api.constants import DEFAULT_NAMESPACE
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CONFIG_MAPS, PODS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.parsing import parse_unsigned
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import Conflict, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient

log = logging.getLogger(__name__)

_RESTART: Final = Backoff(base=1.0, factor=2.0, cap=20.0, jitter=0.1)
_STABLE_SECONDS: Final = 60.0  # a manager that ran for this long restarts without delay
_WRITE: Final = Backoff(base=0.1, factor=2.0, cap=2.0, jitter=0.5)
_GRACE_SECONDS: Final = 10.0
_MESSAGE_LINES: Final = 5


@dataclass(slots=True)
class ManagerPod:
    """One pod and its process."""

    manifest: JsonObject
    address: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    process: Process | None = None
    webhook_port: int = 0
    visibility_port: int = 0
    ports: list[int] = field(default_factory=list)
    ready: bool = False

    @property
    def name(self) -> str:
        """The name of the pod."""
        return str(self.manifest["metadata"]["name"])


class ManagerPods:
    """The manager pods of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        client: KubeClient,
        *,
        node: str,
        webhook_url: str,
        visibility_url: str,
        ports: PortRegistry,
        forks: ForkServer | None,
        environment: Mapping[str, str],
        changed: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        """The URLs are the stable addresses of what they serve; `changed` is called for each change."""
        self._cluster = cluster
        self._client = client
        self._webhook_url = webhook_url
        self._visibility_url = visibility_url
        self._ports = ports
        self._forks = forks
        self._environment = environment
        self._changed = changed
        self._clock = clock or SystemClock()
        self._random = Random()
        self._pods: dict[str, ManagerPod] = {}
        self._addresses = count(1)
        self._tasks: TaskGroup | None = None
        self._informer = Informer(
            client,
            PODS,
            namespace=DEFAULT_NAMESPACE,
            label_selector=",".join(f"{key}={value}" for key, value in objects.SELECTOR.items()),
            field_selector=f"spec.nodeName={node}",
        )
        self._informer.add_handler(self._on_pod)

    def processes(self) -> list[Process]:
        """The manager processes, in the order of their pods."""
        return [pod.process for pod in self._pods.values() if pod.process is not None]

    def webhook_ports(self) -> Iterator[int]:
        """The ports of their webhooks: ready pods first, terminating pods last."""
        return (pod.webhook_port for pod in self._in_turn() if pod.webhook_port)

    def visibility_ports(self) -> Iterator[int]:
        """The ports of their visibility API, in the same order."""
        return (pod.visibility_port for pod in self._in_turn() if pod.visibility_port)

    def _in_turn(self) -> list[ManagerPod]:
        return sorted(self._pods.values(), key=lambda pod: (pod.scope.cancel_called, not pod.ready))

    async def run(self) -> None:
        """Run pods until cancelled, then stop them."""
        async with anyio.create_task_group() as self._tasks:
            await self._informer.run()

    def _on_pod(self, change: Change) -> None:
        uid = change.row.uid
        found = self._pods.get(uid)
        if change.new is None:
            if found is not None:
                found.scope.cancel()
            return
        manifest = change.new.object()
        deleting = manifest["metadata"].get("deletionTimestamp") is not None
        if found is not None:
            found.manifest = manifest
            if deleting:
                found.scope.cancel()
        elif not deleting or manifest["status"].get("phase") not in ("Succeeded", "Failed"):
            assert self._tasks is not None
            self._pods[uid] = pod = ManagerPod(manifest, address=self._address())
            if deleting:
                pod.scope.cancel()
            self._tasks.start_soon(self._keep, uid, pod)

    def _address(self) -> str:
        number = next(self._addresses) % 65536
        return f"10.248.{number // 256}.{number % 256}"

    async def _keep(self, uid: str, pod: ManagerPod) -> None:
        try:
            with pod.scope:
                await self._run_container(pod)
        finally:
            with anyio.CancelScope(shield=True):
                if pod.process is not None:
                    await pod.process.stop(grace=_GRACE_SECONDS)
                for port in pod.ports:
                    self._ports.release(port)
                del self._pods[uid]
                self._changed()
        await self._delete(pod)

    async def _run_container(self, pod: ManagerPod) -> None:
        """Run the manager and restart it until cancelled."""
        restarts = _earlier_restarts(pod.manifest)
        last: ProcessEnd | None = None
        attempt = 0
        while True:
            configuration = await self._configuration(pod, restarts=restarts)
            started = self._clock.now()
            since = self._clock.monotonic()
            pod.process = process = self._process(pod, configuration)
            await self._report(pod, ProcessReport(started=started, restarts=restarts, last=last))
            problem = ""
            try:
                await process.start()
                pod.ready = True
                await self._report(pod, ProcessReport(started=started, ready=True, restarts=restarts, last=last))
            except ComponentFailed as error:
                problem = error.problem
            code = await process.wait()
            pod.ready = False
            restarts += 1
            attempt = 1 if self._clock.monotonic() - since > _STABLE_SECONDS else attempt + 1
            message = process.tail(lines=_MESSAGE_LINES)
            last = ProcessEnd(
                exit_code=1 if code is None else code, message=message, started=started, finished=self._clock.now()
            )
            delay = _RESTART.delay(attempt, self._random)
            log.warning(
                "manager ended, restarting cluster=%s pod=%s problem=%s delay=%.1fs log=%s",
                self._cluster.name,
                pod.name,
                problem or f"exit status {code}",
                delay,
                process.log,
            )
            back_off = f"back-off {delay:.0f}s restarting the manager: {message}"
            await self._report(
                pod, ProcessReport(restarts=restarts, waiting="CrashLoopBackOff", message=back_off, last=last)
            )
            await anyio.sleep(delay)

    async def _configuration(self, pod: ManagerPod, *, restarts: int) -> Path:
        """Write the ConfigMap of the pod's volume to a file and return its path; waits until the ConfigMap exists."""
        name = next(
            (
                volume["configMap"]["name"]
                for volume in pod.manifest["spec"].get("volumes") or []
                if "configMap" in volume
            ),
            objects.CONFIG_MAP,
        )
        attempt = 0
        while True:
            attempt += 1
            try:
                found = await self._client.get_object(CONFIG_MAPS, name, namespace=DEFAULT_NAMESPACE)
            except NotFound:
                problem = f'configmap "{name}" not found'
            except KubeError as error:
                problem = str(error)
            else:
                text = (found.get("data") or {}).get(objects.CONFIG_KEY)
                if isinstance(text, str):
                    file = self._cluster.folder / f"{pod.name}.yaml"
                    file.write_text(text)
                    return file
                problem = f'configmap "{name}" has no key "{objects.CONFIG_KEY}"'
            report = ProcessReport(restarts=restarts, waiting="CreateContainerConfigError", message=problem)
            await self._report(pod, report)
            await anyio.sleep(_WRITE.delay(attempt, self._random))

    def _process(self, pod: ManagerPod, configuration: Path) -> Process:
        # New ports for each start, in case another process listens on the previous ones.
        taken, pod.ports = pod.ports, [self._ports.take() for _ in range(4)]
        for port in taken:
            self._ports.release(port)
        webhooks, metrics, health, visibility = pod.ports
        pod.webhook_port, pod.visibility_port = webhooks, visibility
        spec = roles.manager(
            self._cluster.folder,
            kubeconfig=self._cluster.kubeconfig,
            configuration=configuration,
            ports=roles.ManagerPorts(webhooks=webhooks, metrics=metrics, health=health, visibility=visibility),
            webhook_url=self._webhook_url,
            visibility_url=self._visibility_url,
            identity=f"{pod.name}_{pod.manifest['metadata']['uid']}",
            environment=self._environment,
            log=f"{pod.name}.log",
            extra=(),
            owner=self._cluster.name,
        )
        return Process(spec, forks=self._forks)

    async def _report(self, pod: ManagerPod, report: ProcessReport) -> None:
        """Write the pod's status; retries while the API server is unavailable."""
        self._changed()
        attempt = 0
        while True:
            attempt += 1
            metadata = pod.manifest["metadata"]
            status = pod_status(pod.manifest, report, address=pod.address, now=self._clock.now())
            try:
                await self._client.patch(
                    PODS,
                    metadata["name"],
                    {"metadata": {"uid": metadata["uid"]}, "status": status},
                    namespace=metadata["namespace"],
                    subresource="status",
                )
            except (NotFound, Conflict):
                return  # deleted; the watch event cancels the pod
            except KubeError as error:
                log.warning("pod status not written cluster=%s pod=%s error=%s", self._cluster.name, pod.name, error)
                await anyio.sleep(_WRITE.delay(attempt, self._random))
            else:
                return

    async def _delete(self, pod: ManagerPod) -> None:
        """Delete the pod after its process has ended."""
        metadata = pod.manifest["metadata"]
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._client.delete(
                    PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"], grace_seconds=0
                )
            except (NotFound, Conflict):
                return
            except KubeError as error:
                log.warning("pod not deleted cluster=%s pod=%s error=%s", self._cluster.name, pod.name, error)
                await anyio.sleep(_WRITE.delay(attempt, self._random))
            else:
                return


def _earlier_restarts(pod: JsonObject) -> int:
    """The initial restart count: that of an earlier supervisor, plus one for its end."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return parse_unsigned(statuses[0].get("restartCount", 0), field="restartCount") + 1 if statuses else 0
