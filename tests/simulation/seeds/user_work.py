# SPDX-License-Identifier: Apache-2.0
"""What users submit in a seed: Jobs of several sorts, JobSets, or pods and groups, whose failed pods they replace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, Protocol

from devcluster.apiserver.server import ApiServer
from devcluster.apiserver.storage.entry import StoredChange
from devcluster.operators.definitions import JOB_SETS, shipped_definition
from multikueue.api.configuration import Configuration
from multikueue.api.constants import (
    ADMISSION_SCHEDULING_GATE,
    BATCH_JOB_FRAMEWORK,
    ELASTIC_JOB_ANNOTATION,
    MANAGED_LABEL,
    MANAGED_LABEL_VALUE,
    POD_FINALIZER,
    POD_FRAMEWORK,
    POD_GROUP_NAME_LABEL,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
)
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS
from multikueue.core.conditions import is_true_in
from tests.simulation.seeds.scenario import Work
from tests.simulation.world import job_set_pods
from tests.simulation.world.federation import NAMESPACE, USER_JOBS, call, create, job, settings
from tests.simulation.world.group_pods import PODS, RemotePods
from tests.simulation.world.network import Server
from tests.simulation.world.pods import JOBS, Copy, Pods
from tests.simulation.world.slow_pods import SlowPods

Object = dict[str, Any]

USER_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_JOB_SET_FRAMEWORK: Final = "jobset.x-k8s.io/jobset"
_REPLACED_AFTER: Final = (0.5, 5.0)


def prepare_for_pods(server: ApiServer) -> None:
    """What pods need on a server besides: their service account."""
    create(server, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})


class UserWork(Protocol):
    """Of which kind all work of a seed is."""

    submitted: str
    """The collection of what users submit."""
    collection: str
    """The collection of what is sent to workers."""
    frameworks: tuple[str, ...]
    remote_pods: type[Pods]
    is_group: bool
    """Whether a work has several objects, which end one after the other, and which their Workload keeps."""
    is_elastic: bool
    """Whether users change the size of what runs."""
    serves: bool
    """Whether it has no end of its own, and another controller replaces its pods."""
    is_slow: bool
    """Whether pods take their time to be ready, and the hub waits for that."""

    def prepare(self, server: ApiServer) -> None:
        """Create what it needs on each server besides."""

    def name_of(self, name: str) -> str:
        """The work to which an object of that name belongs."""

    def submit(self, hub: ApiServer, work: Work, *, labels: dict[str, str], annotations: dict[str, str]) -> None:
        """Create it, with what a manager's webhooks would default."""

    def of(self, server: ApiServer, name: str) -> list[Object]:
        """The objects of that work there, on the hub or on a worker."""

    def delete(self, server: ApiServer, obj: Object, *, propagation: str) -> None:
        """Delete one of them."""

    def label(self, hub: ApiServer, name: str, labels: dict[str, str]) -> None:
        """Change the labels of the work."""

    def has_succeeded(self, obj: Object) -> bool:
        """Whether the object has succeeded, as its status shows."""

    def incomplete(self, objects: Iterable[Object]) -> list[str]:
        """The work that has not succeeded yet, of all objects on the hub."""


class JobWork:
    """A Job of one pod."""

    submitted = JOBS
    collection = JOBS
    path = USER_JOBS
    end = "Complete"
    """The condition of one that has succeeded."""
    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK,)
    remote_pods: type[Pods] = Pods
    is_group = False
    is_elastic = False
    serves = False
    is_slow = False

    def prepare(self, server: ApiServer) -> None:
        """Nothing."""

    def name_of(self, name: str) -> str:
        """The work of the same name."""
        return name

    def submit(self, hub: ApiServer, work: Work, *, labels: dict[str, str], annotations: dict[str, str]) -> None:
        """Create the Job."""
        made = job(work.name, cpu=work.cpu, labels=labels, annotations=annotations)
        made["spec"] |= {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}
        create(hub, self.path, made)

    def of(self, server: ApiServer, name: str) -> list[Object]:
        """The one of that name."""
        found = server.context.get(self.collection, f"{NAMESPACE}/{name}")
        return [] if found is None else [found]

    def delete(self, server: ApiServer, obj: Object, *, propagation: str) -> None:
        """Delete it."""
        call(server, "DELETE", f"{self.path}/{obj['metadata']['name']}", {"propagationPolicy": propagation})

    def label(self, hub: ApiServer, name: str, labels: dict[str, str]) -> None:
        """Change its labels."""
        call(hub, "PATCH", f"{self.path}/{name}", {"metadata": {"labels": labels}})

    def has_succeeded(self, obj: Object) -> bool:
        """Whether it is complete."""
        return is_true_in(obj.get("status") or {}, self.end)

    def incomplete(self, objects: Iterable[Object]) -> list[str]:
        """Those that have not succeeded."""
        return [found["metadata"]["name"] for found in objects if not self.has_succeeded(found)]


class ElasticWork(JobWork):
    """A Job with as many pods of one cpu as the work has cpu at first, whose users change that."""

    is_elastic = True

    def submit(self, hub: ApiServer, work: Work, *, labels: dict[str, str], annotations: dict[str, str]) -> None:
        """Create the Job."""
        made = job(work.name, cpu=1, labels=labels, annotations={**annotations, ELASTIC_JOB_ANNOTATION: "true"})
        made["spec"] |= {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue", "parallelism": work.cpu}
        create(hub, USER_JOBS, made)


class SlowWork(JobWork):
    """A Job whose pod may take long until it is ready, on a hub that does not wait for long."""

    remote_pods: type[Pods] = SlowPods
    is_slow = True


class ParallelWork(JobWork):
    """A Job with as many pods of one cpu as the work has cpu, all of which have to succeed."""

    def submit(self, hub: ApiServer, work: Work, *, labels: dict[str, str], annotations: dict[str, str]) -> None:
        """Create the Job."""
        made = job(work.name, cpu=1, labels=labels, annotations=annotations)
        count = {"parallelism": work.cpu, "completions": work.cpu}
        made["spec"] |= {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue", **count}
        create(hub, self.path, made)


class JobSetWork(JobWork):
    """A JobSet with as many Jobs of one pod and one cpu as the work has cpu."""

    submitted = job_set_pods.COLLECTION
    collection = job_set_pods.COLLECTION
    path = JOB_SETS.path(NAMESPACE)
    end = "Completed"
    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK, _JOB_SET_FRAMEWORK)
    remote_pods: type[Pods] = job_set_pods.JobSetPods

    def prepare(self, server: ApiServer) -> None:
        """The definition of JobSets."""
        create(server, CUSTOM_RESOURCE_DEFINITIONS.path(), shipped_definition(JOB_SETS))

    def submit(self, hub: ApiServer, work: Work, *, labels: dict[str, str], annotations: dict[str, str]) -> None:
        """Create the JobSet."""
        jobs = [{"name": "main", "replicas": work.cpu, "template": {"spec": job(work.name, cpu=1)["spec"]}}]
        made = {
            "apiVersion": JOB_SETS.api_version,
            "kind": JOB_SETS.kind,
            "metadata": {"name": work.name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations},
            "spec": {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue", "replicatedJobs": jobs},
        }
        create(hub, self.path, made)


class GroupWork:
    """A pod group with as many pods of one cpu as the work has cpu."""

    submitted = PODS
    collection = PODS
    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK, POD_FRAMEWORK)
    remote_pods: type[Pods] = RemotePods
    is_group = True
    is_elastic = False
    serves = False
    is_slow = False

    def prepare(self, server: ApiServer) -> None:
        """Their service account."""
        prepare_for_pods(server)

    def name_of(self, name: str) -> str:
        """The group: pods are named `job-1-0`, and those that replace them `job-1-0-r1`."""
        return "-".join(name.split("-")[:2])

    def submit(self, hub: ApiServer, work: Work, *, labels: dict[str, str], annotations: dict[str, str]) -> None:
        """Create the pods that are not there."""
        there = {found["metadata"]["name"] for found in self.of(hub, work.name)}
        for index in range(work.cpu):
            if (name := f"{work.name}-{index}") not in there:
                group = {POD_GROUP_NAME_LABEL: work.name}
                total = {POD_GROUP_TOTAL_COUNT_ANNOTATION: str(work.cpu)}
                create(hub, USER_PODS, _pod(name, labels={**labels, **group}, annotations={**annotations, **total}))

    def of(self, server: ApiServer, name: str) -> list[Object]:
        """The pods of the group."""
        return [
            found
            for found in server.context.objects(PODS, namespace=NAMESPACE)
            if self.name_of(found["metadata"]["name"]) == name
        ]

    def delete(self, server: ApiServer, obj: Object, *, propagation: str) -> None:
        """Delete one pod."""
        call(server, "DELETE", f"{USER_PODS}/{obj['metadata']['name']}", {"propagationPolicy": propagation})

    def label(self, hub: ApiServer, name: str, labels: dict[str, str]) -> None:
        """Change the labels of all pods."""
        for found in self.of(hub, name):
            call(hub, "PATCH", f"{USER_PODS}/{found['metadata']['name']}", {"metadata": {"labels": labels}})

    def has_succeeded(self, obj: Object) -> bool:
        """Whether the pod has succeeded."""
        return bool((obj.get("status") or {}).get("phase") == "Succeeded")

    def incomplete(self, objects: Iterable[Object]) -> list[str]:
        """The groups of which fewer pods than their total count have succeeded."""
        left: dict[str, int] = {}
        for found in objects:
            group = found["metadata"]["labels"][POD_GROUP_NAME_LABEL]
            left.setdefault(group, int(found["metadata"]["annotations"][POD_GROUP_TOTAL_COUNT_ANNOTATION]))
            left[group] -= self.has_succeeded(found)
        return [group for group, count in left.items() if count > 0]


class PodWork(GroupWork):
    """A pod of its own, with the cpu of the work."""

    is_group = False

    def submit(self, hub: ApiServer, work: Work, *, labels: dict[str, str], annotations: dict[str, str]) -> None:
        """Create the pod."""
        create(hub, USER_PODS, _pod(work.name, labels=labels, annotations=annotations, cpu=work.cpu))

    def incomplete(self, objects: Iterable[Object]) -> list[str]:
        """The work of which no pod has succeeded, neither the first nor one that replaces it."""
        succeeded: dict[str, bool] = {}
        for found in objects:
            name = self.name_of(found["metadata"]["name"])
            succeeded[name] = succeeded.get(name, False) or self.has_succeeded(found)
        return [name for name, done in succeeded.items() if not done]


class Replacing:
    """Users who replace their failed pods."""

    def __init__(self, hub: Server, random: Random, *, tell: Callable[[str], None]) -> None:
        self._hub = hub
        self._random = random
        self._tell = tell
        self._replaced: set[str] = set()

    def on_write(self, collection: str, event: StoredChange) -> None:
        """Note that a pod has failed."""
        if collection == PODS and event.entry is not None:
            self._look(event.value())

    def look_again(self) -> None:
        """Find the failed pods of a restored hub."""
        self._replaced.clear()
        for pod in self._hub.api.context.objects(PODS, namespace=NAMESPACE):
            self._look(pod)

    def _look(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        failed = (pod.get("status") or {}).get("phase") == "Failed"
        if failed and "deletionTimestamp" not in pod["metadata"] and uid not in self._replaced:
            self._replaced.add(uid)
            self._later(pod, self._random.uniform(*_REPLACED_AFTER))

    def _later(self, pod: Object, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._replace, pod)

    def _replace(self, pod: Object) -> None:
        if not self._hub.up:
            self._later(pod, 1.0)
            return
        metadata = pod["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        there = self._hub.api.context.get(PODS, key)
        if there is None or there["metadata"]["uid"] != metadata["uid"] or "deletionTimestamp" in there["metadata"]:
            return  # its user has deleted the group
        number, name = 1, metadata["name"].partition("-r")[0]
        while self._hub.api.context.get(PODS, f"{NAMESPACE}/{name}-r{number}") is not None:
            number += 1
        self._tell(f"user replaces the failed pod {metadata['name']} by {name}-r{number}")
        labels, annotations = dict(metadata["labels"]), dict(metadata["annotations"])
        cpu = int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        made = _pod(f"{name}-r{number}", labels=labels, annotations=annotations, cpu=cpu)
        create(self._hub.api, USER_PODS, made)


def _pod(name: str, *, labels: dict[str, str], annotations: dict[str, str], cpu: int = 1) -> Object:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": str(cpu)}}}
    kept = {key: labels[key] for key in (QUEUE_NAME_LABEL, PRIORITY_CLASS_LABEL, POD_GROUP_NAME_LABEL) if key in labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {**kept, MANAGED_LABEL: MANAGED_LABEL_VALUE},
            "annotations": annotations,
            "finalizers": [POD_FINALIZER],
        },
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": [{"name": ADMISSION_SCHEDULING_GATE}],
            "containers": [container],
        },
    }


def remote(
    work: UserWork,
    server: Server,
    random: Random,
    *,
    seconds: Callable[[str], float],
    tell: Callable[[str, Copy], None],
) -> Pods:
    """The pods of that kind of work on a worker; `seconds` is how long the work of a name runs."""
    return work.remote_pods(server, random, seconds=lambda name: seconds(work.name_of(name)), tell=tell)


def one_starts(seed: int) -> bool:
    """Whether slow work of that seed gets quota one by one. Dispatchers take turns with each seed."""
    return seed // 4 % 2 == 0


def settings_of(seed: int, dispatcher: str, work: UserWork) -> Configuration:
    """What the managers of a seed read."""
    waits = one_starts(seed) if work.is_slow else None
    return settings(dispatcher, work.frameworks, elastic=work.is_elastic, one_starts=waits)
