# SPDX-License-Identifier: Apache-2.0
"""What happens to Jobs, played on a cluster by hand, and what is to be seen of it afterwards.

Pods either run on virtual nodes, as their annotations tell, or fit no node and are ended by the hand of the test: so
that each index can end as the scenario wants. Names, times and addresses are left out of what is compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from multikueue.api.objects import JsonObject
from multikueue.api.resource import EVENTS, JOBS, NAMESPACES, PODS, SERVICE_ACCOUNTS
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient, PatchKind
from tests.component.controllers.cluster_cases import PATIENCE
from tests.support.polling import comes_to_hold

INDEX: Final = "batch.kubernetes.io/job-completion-index"
_BY_HAND: Final = {"by-hand": "true"}
_TIMES: Final = ("lastProbeTime", "lastTransitionTime", "startTime", "completionTime")


class Stage:
    """One Job in a namespace of its own."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.name = "job"

    async def create(self, spec: JsonObject) -> JsonObject:
        """The namespace and the Job."""
        await self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": self._meta()})
        assert await comes_to_hold(self._has_account, seconds=PATIENCE), f"{self.namespace}: no service account"
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": self.name}, "spec": spec}
        await self.client.create(JOBS, job, namespace=self.namespace)
        return await self.job()

    async def _has_account(self) -> bool:
        """Whether pods can be made: each needs the service account of its namespace."""
        try:
            await self.client.get(SERVICE_ACCOUNTS, "default", namespace=self.namespace)
        except NotFound:
            return False
        return True

    def _meta(self) -> JsonObject:
        return {"name": self.namespace}

    async def job(self) -> JsonObject:
        """As it is now."""
        return await self.client.get_object(JOBS, self.name, namespace=self.namespace)

    async def patch(self, spec: JsonObject) -> None:
        """Change the Job's spec."""
        await self.client.patch(JOBS, self.name, {"spec": spec}, namespace=self.namespace)

    async def pods(self) -> list[JsonObject]:
        """All of the Job, the oldest first."""
        found = (await self.client.request("GET", PODS.path(self.namespace))).json()["items"]
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    async def until(self, what: str, holds: Callable[[JsonObject, list[JsonObject]], bool]) -> None:
        """Wait for a state of the Job and its pods."""
        job: JsonObject = {}
        pods: list[JsonObject] = []

        async def seen() -> bool:
            nonlocal job, pods
            job, pods = await self.job(), await self.pods()
            return holds(job, pods)

        if not await comes_to_hold(seen, seconds=PATIENCE):
            raise AssertionError(f"{self.namespace}: never {what}: {job.get('status')}, pods {_phases(pods)}")

    async def running(self, count: int) -> None:
        """Until so many pods are there that have not ended, and the Job says so."""
        await self.until(
            f"{count} pods",
            lambda job, pods: len(living(pods)) == count and (job.get("status") or {}).get("active", 0) == count,
        )

    async def over(self, condition: str) -> None:
        """Until the Job has ended so."""
        await self.until(condition, lambda job, _: has(job, condition))

    async def end(self, *, code: int = 0, index: int | None = None, disrupted: bool = False) -> None:
        """End the oldest living pod, or that of an index."""
        pods = [pod for pod in living(await self.pods()) if index is None or index_of(pod) == index]
        pod = pods[0]
        terminated = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        conditions = [{"type": "DisruptionTarget", "status": "True", "reason": "Test"}] if disrupted else []
        status = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "x",
                    "imageID": "x",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": {**terminated, "finishedAt": "2026-01-01T00:00:00Z", "startedAt": None}},
                }
            ],
        }
        await self.client.patch(
            PODS,
            pod["metadata"]["name"],
            {"status": status},
            namespace=self.namespace,
            kind=PatchKind.STRATEGIC,
            subresource="status",
        )

    async def outcome(self) -> JsonObject:
        """What is to be seen now."""
        try:
            status = plain((await self.job()).get("status") or {})
        except NotFound:
            status = {"gone": True}
        events = (await self.client.request("GET", EVENTS.path(self.namespace))).json()["items"]
        about = [event for event in events if event["regarding"]["kind"] == "Job"]
        counts: Counter[str] = Counter()
        for event in about:
            counts[event["reason"]] += (event.get("series") or {}).get("count") or event.get("deprecatedCount") or 1
        return {"status": status, "events": dict(counts), "pods": dict(Counter(_phases(await self.pods())))}


Play: TypeAlias = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A Job and what is done to it; `play` returns when it has come to rest."""

    title: str
    spec: JsonObject
    play: Play


async def played(client: KubeClient, scenario: Scenario, namespace: str, *, expected: JsonObject) -> JsonObject:
    """What is to be seen after a scenario; the last events are waited for, since they are sent aside."""
    stage = Stage(client, namespace)
    await stage.create(scenario.spec)
    await scenario.play(stage)
    seen = await stage.outcome()

    async def complete() -> bool:
        nonlocal seen
        seen = await stage.outcome()
        return seen == expected

    await comes_to_hold(complete, seconds=PATIENCE)
    return seen


def has(job: JsonObject, condition: str) -> bool:
    """Whether the condition is True."""
    found = (job.get("status") or {}).get("conditions") or []
    return any(entry["type"] == condition and entry["status"] == "True" for entry in found)


def living(pods: list[JsonObject]) -> list[JsonObject]:
    """Those that have neither ended nor been asked to go."""
    return [
        pod
        for pod in pods
        if pod["status"].get("phase") not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]
    ]


def index_of(pod: JsonObject) -> int:
    """The completion index; -1 without."""
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))


def _phases(pods: list[JsonObject]) -> list[str]:
    return [pod["status"].get("phase", "") for pod in pods]


def plain(value: Any) -> Any:
    """Without times, and with the random ends of pods' names and the namespace named alike."""
    if isinstance(value, dict):
        return {key: "time" if key in _TIMES else plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, str):
        return re.sub(r"[a-z0-9]+-\d+/job-(\d+-)?[a-z0-9]{5}\b", r"ns/job-\1x", value)
    return value


def by_hand(**spec: Any) -> JsonObject:
    """A Job whose pods fit no node."""
    return _spec({"nodeSelector": _BY_HAND}, {}, spec)


def on_nodes(annotations: Mapping[str, str] | None = None, **spec: Any) -> JsonObject:
    """A Job whose pods run on virtual nodes."""
    return _spec({}, annotations or {"multikueue.io/run-for": "300ms"}, spec)


def _spec(pod: JsonObject, annotations: Mapping[str, str], spec: JsonObject) -> JsonObject:
    policy = spec.pop("restartPolicy", "Never")
    containers = [{"name": "main", "image": "x"}]
    return {
        **spec,
        "template": {
            "metadata": {"annotations": dict(annotations)},
            "spec": {"restartPolicy": policy, "containers": containers, **pod},
        },
    }
