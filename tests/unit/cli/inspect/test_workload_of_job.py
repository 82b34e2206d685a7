# SPDX-License-Identifier: Apache-2.0
"""A job that exists without a Workload is explained by its object and its events."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from multikueue.cli.hub_options import HubOptions, WorkloadRef
from multikueue.cli.inspect import live_explanation, timeline_objects
from multikueue.cli.inspect.workload_of_job import WorkloadNotFound, find_on_hub
from multikueue.core.keys import Key
from multikueue.jobs.framework.registry import known_integrations
from tests.support.stub_api import StubApi, json_answer, listing, status_answer, stub_api

Object = dict[str, Any]
T0 = "2026-01-01T12:00:00Z"
QUEUE, CLASS = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"


class Hub:
    """The objects of a hub by the path of their request, and the kinds that may not be read."""

    def __init__(self, *objects: Object, events: tuple[Object, ...] = (), forbidden: tuple[str, ...] = ()) -> None:
        self._objects = {_path(each): each for each in objects}
        self._events = events
        self._forbidden = forbidden

    async def answer(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.split("/")
        if any(part in self._forbidden for part in parts):
            return status_answer(403, "Forbidden")
        if parts[-1] == "events":
            return listing(*self._events)
        if request.path in self._objects:
            return json_answer(self._objects[request.path])
        below = [each for path, each in self._objects.items() if path.startswith(f"{request.path}/")]
        is_list = parts[-1].endswith("s") and not parts[-2].endswith("s")
        return listing(*below) if is_list or below else status_answer(404, "NotFound")


def _path(obj: Object) -> str:
    group = obj["apiVersion"]
    namespace = obj["metadata"].get("namespace")
    below = f"/namespaces/{namespace}" if namespace else ""
    plural = f"{obj['kind'].lower()}{'es' if obj['kind'].endswith('s') else 's'}"
    return f"/{'apis/' if '/' in group else 'api/'}{group}{below}/{plural}/{obj['metadata']['name']}"


def job(*, labels: Object | None = None, priority: str = "", status: Object | None = None, **metadata: Any) -> Object:
    """A Job `ns/j` of the queue `lq`."""
    pod: Object = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    if priority:
        pod["priorityClassName"] = priority
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "uid-j",
            "creationTimestamp": T0,
            "labels": {QUEUE: "lq"} if labels is None else labels,
            **metadata,
        },
        "spec": {"suspend": True, "template": {"spec": pod}},
        "status": status or {},
    }


def pod(name: str, *, total: str = "3") -> Object:
    """A pod of the group `g`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "creationTimestamp": T0,
            "labels": {QUEUE: "lq", "kueue.x-k8s.io/pod-group-name": "g"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": total},
        },
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
        },
    }


def event(reason: str, note: str, *, uid: str = "uid-j", at: str = T0) -> Object:
    return {"metadata": {"name": note}, "reason": reason, "note": note, "eventTime": at, "regarding": {"uid": uid}}


async def why(hub: Hub, *, kind: str = "job", name: str = "j") -> list[str]:
    """The lines of the error."""
    async with stub_api(hub.answer) as stub, stub.client(user_agent="mkctl") as client:
        with pytest.raises(WorkloadNotFound) as raised:
            await find_on_hub(
                client, [], WorkloadRef(kind, Key("ns", name)), kinds=tuple(known_integrations().values())
            )
    return str(raised.value).split("\n")


LABELLED = {QUEUE: "lq", CLASS: "high"}
NO_CLASS = "WorkloadPriorityClass high doesn't exist; create it or correct the job's label"
HIGH = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}}
OWNER = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "uid": "u", "controller": True}
UNKNOWN = (
    "no event says why; if it was not created just now, check that the manager runs and that it manages the namespace"
)


@pytest.mark.parametrize(
    ("hub", "cause"),
    [
        pytest.param(Hub(job(labels=LABELLED)), NO_CLASS, id="its WorkloadPriorityClass does not exist"),
        pytest.param(
            Hub(job(priority="fast")),
            "PriorityClass fast doesn't exist; create it or correct the job's pods",
            id="the PriorityClass of its pods does not exist",
        ),
        pytest.param(Hub(job(labels=LABELLED), HIGH), UNKNOWN, id="its class exists"),
        pytest.param(
            Hub(
                job(labels=LABELLED),
                events=(event("WorkloadPriorityClassNotFound", NO_CLASS),),
                forbidden=("workloadpriorityclasses",),
            ),
            NO_CLASS,
            id="classes may not be read and an event names it",
        ),
        pytest.param(
            Hub(
                job(),
                events=(
                    event("ErrWorkloadCompose", "the first", at="2026-01-01T12:00:01Z"),
                    event("ErrWorkloadCompose", "the last", at="2026-01-01T12:00:03Z"),
                    event("Suspended", "Job suspended", at="2026-01-01T12:00:04Z"),
                    event("ErrWorkloadCompose", "of another", uid="uid-other", at="2026-01-01T12:00:05Z"),
                ),
            ),
            "the last",
            id="the last event that says why",
        ),
        pytest.param(Hub(job(), forbidden=("events",)), UNKNOWN, id="nothing says why"),
        pytest.param(
            Hub(job(labels={})),
            "it is not queued; create the Job again with the label kueue.x-k8s.io/queue-name",
            id="it names no queue",
        ),
        pytest.param(
            Hub(job(labels={}), events=(event("QueueNameMissing", "It is not queued: use lq"),)),
            "It is not queued: use lq",
            id="it names no queue and an event has those that there are",
        ),
        pytest.param(
            Hub(job(labels={QUEUE: "lq", "kueue.x-k8s.io/prebuilt-workload-name": "mine"})),
            "it waits for Workload mine, which it names, and which is missing or not its own",
            id="the Workload that it names is missing",
        ),
        pytest.param(
            Hub(job(status={"conditions": [{"type": "Complete", "status": "True"}]})),
            "it has ended, and its Workload was deleted",
            id="it has ended",
        ),
    ],
)
async def test_a_job_without_a_workload_has_its_cause(hub: Hub, cause: str) -> None:
    assert await why(hub) == [f"Job ns/j exists, but has no Workload: {cause}", "kubectl describe job j -n ns"]


@pytest.mark.parametrize("labels", [{}, {QUEUE: "lq"}], ids=["without a label", "with a label of its own"])
async def test_a_job_of_an_owner_leads_to_that_owner(labels: Object) -> None:
    assert await why(Hub(job(labels=labels, ownerReferences=[OWNER]))) == [
        "Job ns/j exists, but has no Workload: it belongs to JobSet js and is queued with it",
        "mkctl explain jobset js -n ns",
    ]


async def test_a_labelled_job_of_an_owner_has_a_cause_of_its_own_first() -> None:
    (line, _) = await why(Hub(job(labels=LABELLED, ownerReferences=[OWNER])))
    assert line.endswith(NO_CLASS)


@pytest.mark.parametrize(
    ("pods", "cause"),
    [
        pytest.param(
            [pod("p1"), pod("p2")],
            "2 of 3 pods of the group exist, and 1 is missing; create it with the same"
            " kueue.x-k8s.io/pod-group-name: g",
            id="one is missing",
        ),
        pytest.param(
            [pod("p1")],
            "1 of 3 pods of the group exist, and 2 are missing; create them with the same"
            " kueue.x-k8s.io/pod-group-name: g",
            id="two are missing",
        ),
        pytest.param(
            [pod("p1"), pod("p2", total="2")],
            "annotation kueue.x-k8s.io/pod-group-total-count: expected one number on all pods of the group, found 2, 3;"
            " correct it and create the Pod again",
            id="they contradict each other",
        ),
        pytest.param([pod("p1"), pod("p2"), pod("p3")], UNKNOWN, id="none is missing"),
    ],
)
async def test_a_pod_of_an_incomplete_group_is_told_how_many_are_missing(pods: list[Object], cause: str) -> None:
    assert await why(Hub(*pods), kind="pod", name="p1") == [
        f"Pod ns/p1 exists, but has no Workload: {cause}",
        "kubectl describe pod p1 -n ns",
    ]


async def test_pods_that_may_not_be_listed_are_not_counted() -> None:
    class NoLists(Hub):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            return status_answer(403, "Forbidden") if request.path.endswith("/pods") else await super().answer(request)

    (line, _) = await why(NoLists(pod("p1")), kind="pod", name="p1")
    assert line == f"Pod ns/p1 exists, but has no Workload: {UNKNOWN}"


@pytest.mark.parametrize("forbidden", [(), ("jobs",)], ids=["there is no such job", "jobs may not be read"])
async def test_a_job_that_cannot_be_read_is_not_found(forbidden: tuple[str, ...]) -> None:
    assert await why(Hub(forbidden=forbidden)) == [
        "Workload of Job ns/j not found. To see which there are:",
        "kubectl get jobs,workloads -n ns",
    ]


async def test_a_workload_that_does_not_exist_is_not_found() -> None:
    assert (await why(Hub(job()), kind="workload"))[0] == "Workload ns/j not found. To see which there are:"


def options_for(stub: StubApi, folder: Path) -> HubOptions:
    kubeconfig = folder / "kubeconfig"
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": stub.url}}],
        "users": [{"name": "u", "user": {}}],
    }
    kubeconfig.write_bytes(orjson.dumps(content))
    return HubOptions(kubeconfig=str(kubeconfig), manager_namespace="kueue-system")


async def test_explain_and_timeline_say_why_a_job_has_no_workload(tmp_path: Path) -> None:
    ref = WorkloadRef("job", Key("ns", "j"))
    async with stub_api(Hub(job(labels=LABELLED)).answer) as stub:
        options = options_for(stub, tmp_path)
        with pytest.raises(WorkloadNotFound, match=NO_CLASS):
            await live_explanation.explain(options, ref, config=None, now=datetime(2026, 1, 1, tzinfo=UTC))
        with pytest.raises(WorkloadNotFound, match=NO_CLASS):
            await timeline_objects.read(options, ref)
