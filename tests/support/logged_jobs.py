# SPDX-License-Identifier: Apache-2.0
"""Remote jobs with pods that write, and `mkctl logs` of their users."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from devcluster.apiserver import errors
from devcluster.apiserver.http.pod_access import KubeletRequest
from devcluster.apiserver.http.requests import Reply, Request, RequestTarget, Sink, Stream
from devcluster.cluster import Cluster
from multikueue.api.constants import BATCH_CONTROLLER_UID_LABEL, BATCH_JOB_NAME_LABEL
from multikueue.api.resource import JOB_LOG_REQUESTS, PODS, SERVICE_ACCOUNTS
from multikueue.cli.hub_options import HubOptions
from multikueue.cli.logs.command import LogOptions
from multikueue.core.keys import Key
from tests.support.failed_jobs import SERVICE_ACCOUNT
from tests.support.managers import ensure
from tests.support.scenes import Scene
from tests.support.sites import Site


@dataclass
class WritingPods:
    """Answers `pods/log` with lines and their times; a log that is open ends with `finish`."""

    lines: dict[str, list[str]] = field(default_factory=dict)
    open: bool = False
    code: int = 0
    """The error to answer with instead."""
    seen: list[dict[str, str]] = field(default_factory=list)
    streams: list[_Writing] = field(default_factory=list)

    async def logs(self, request: Request, target: RequestTarget) -> Reply:
        """The log of the pod."""
        self.seen.append({"pod": target.name, **request.query})
        if self.code:
            raise errors.StatusError(self.code, "InternalError", "no log today")
        lines = self.lines.get(target.name, [])
        tail = request.query.get("tailLines")
        made = _Writing(lines[-int(tail) :] if tail else lines)
        self.streams.append(made)
        if not (self.open and request.query.get("follow") == "true"):
            made.finish()
        return Stream(made, content_type="text/plain")

    def write(self, pod: str, *lines: str) -> None:
        """The pod writes on, also to those who follow."""
        self.lines.setdefault(pod, []).extend(lines)
        for stream in self.streams:
            stream.write(*lines)

    def finish(self) -> None:
        """All logs end."""
        self.open = False
        for stream in self.streams:
            stream.finish()

    async def stream(self, request: Request, requested: KubeletRequest) -> Reply:
        """Not called."""
        raise AssertionError("no command is run in a container here")

    async def forward(self, request: Request, requested: KubeletRequest) -> Reply:
        """Not called."""
        raise AssertionError("no port is forwarded here")


class _Writing:
    """A `requests.Feed`."""

    def __init__(self, lines: list[str]) -> None:
        self._ready = [_stamped(number, line) for number, line in enumerate(lines)]
        self._count = len(lines)
        self._ends = False
        self._sink: Sink | None = None

    def start(self, sink: Sink) -> None:
        self._sink = sink
        self._flush()

    def stop(self) -> None:
        self._sink = None

    def write(self, *lines: str) -> None:
        self._ready += [_stamped(self._count + number, line) for number, line in enumerate(lines)]
        self._count += len(lines)
        self._flush()

    def finish(self) -> None:
        self._ends = True
        self._flush()

    def _flush(self) -> None:
        if self._sink is None or self._sink.closed:
            return
        for line in self._ready:
            self._sink.write(line)
        self._ready = []
        if self._ends:
            self._sink.close()


def _stamped(number: int, line: str) -> bytes:
    return f"2026-01-01T00:{number // 60 % 60:02d}:{number % 60:02d}.{number % 1000000:06d}Z {line}\n".encode()


def writing(site: Site, **lines: list[str]) -> WritingPods:
    """What the kubelets there answer from now on."""
    made = WritingPods({pod.replace("_", "-"): text for pod, text in lines.items()})
    site.api.connect_kubelets(made)
    return made


def running_pod(name: str, *, job: str, job_uid: str, phase: str = "Running") -> dict[str, Any]:
    """A pod of the Job."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job_uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {BATCH_JOB_NAME_LABEL: job, BATCH_CONTROLLER_UID_LABEL: job_uid},
            "ownerReferences": [owner],
        },
        "spec": {
            "restartPolicy": "Never",
            "nodeName": "node",
            "containers": [{"name": "main", "image": "busybox"}, {"name": "side", "image": "busybox"}],
        },
        "status": {"phase": phase},
    }


async def add_pod(
    made: Scene,
    site: Site,
    name: str,
    *,
    job: str = "j",
    owner: str = "",
    owner_kind: str = "Job",
    namespace: str = "",
) -> str:
    """A pod with the labels of the Job's pods on that worker; the uid of the remote Job, which owns it by default."""
    namespace = namespace or made.namespace
    found = await site.job(job, namespace=made.namespace)
    assert found is not None
    uid = str(found["metadata"]["uid"])
    pod = running_pod(name, job=job, job_uid=uid)
    pod["metadata"]["ownerReferences"][0] |= {"uid": owner or uid, "kind": owner_kind}
    account = {**SERVICE_ACCOUNT, "metadata": {"name": "default", "namespace": namespace}}
    await ensure(site.client, SERVICE_ACCOUNTS, account)
    await site.client.create(PODS, {key: value for key, value in pod.items() if key != "status"}, namespace=namespace)
    await site.client.patch(PODS, name, {"status": pod["status"]}, namespace=namespace, subresource="status")
    return uid


def hub_of(cluster: Cluster, folder: Path, *, user: str = "") -> HubOptions:
    """The hub for `mkctl`, as its administrator or that user."""
    path = folder / f"hub-{user or 'admin'}.yaml"
    content = cluster.issue_client_certificate(user) if user else cluster.kubeconfig
    path.write_text(content.read_text() if isinstance(content, Path) else yaml.safe_dump(content))
    return HubOptions(kubeconfig=str(path))


def relayed(made: Scene, **options: Any) -> LogOptions:
    """`mkctl logs --relay` of the Job."""
    return LogOptions(job=Key(made.namespace, str(options.pop("job", "j"))), relay=True, **options)


def log_request(job: str = "j", *, name: str = "r", **spec: Any) -> dict[str, Any]:
    """A JobLogRequest."""
    return {
        "apiVersion": JOB_LOG_REQUESTS.api_version,
        "kind": JOB_LOG_REQUESTS.kind,
        "metadata": {"name": name},
        "spec": {"job": {"apiVersion": "batch/v1", "kind": "Job", "name": job}, **spec},
    }
