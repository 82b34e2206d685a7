# SPDX-License-Identifier: Apache-2.0
"""What ResourceQuotas refuse.

The real side runs without controllers, so each case writes the status of its quotas: nothing is used at first.
"""

from __future__ import annotations

from typing import Any, Final

import anyio
import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side
from tests.conformance.kinds.quota_objects import INSIDE, PLACES, QUOTAS, Document, document, quota, selecting

pytestmark = pytest.mark.binaries

CASES = Cases("quotas")
UPDATES = Cases("quotas of updates")
Step = tuple[str, Document]
"""What is created: the name of a place, and the object."""

_MERGE: Final = "application/merge-patch+json"
_LAST: Final[Document] = {"count/leases.coordination.k8s.io": "0"}
_PATIENCE: Final = 20.0
_PORTS: Final = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]


def _container(name: str = "c", requests: Document | None = None, limits: Document | None = None, **more: Any) -> Any:
    amounts = {**({"requests": requests} if requests else {}), **({"limits": limits} if limits else {})}
    return {"name": name, "image": "i", **({"resources": amounts} if amounts else {}), **more}


def _pod(*containers: Document, name: str = "{id}", **spec: Any) -> Document:
    base = {"restartPolicy": "Never", "automountServiceAccountToken": False}
    return document("Pod", name, spec={**base, "containers": [*(containers or (_container(),))], **spec})


def _service(name: str = "{id}", **spec: Any) -> Document:
    return document("Service", name, spec={"ports": _PORTS, **spec})


def _claim(storage: str, name: str = "{id}", **spec: Any) -> Document:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    return document("PersistentVolumeClaim", name, spec={**wanted, "storageClassName": "gold", **spec})


def _controller() -> Document:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [_container()]}}
    return document("ReplicationController", spec={"selector": {"a": "b"}, "template": template})


def _affine(side: str, **term: Any) -> Document:
    full = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}, **term}
    if side == "podAffinity":
        return {"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [full]}}}
    weighted = [{"weight": 1, "podAffinityTerm": full}]
    return {"affinity": {side: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}


async def _write(side: Side, quota: Document) -> None:
    """Create a quota whose status says that nothing is used but the quota itself."""
    hard = quota["spec"]["hard"]
    await side.quietly(Exchange("POST", QUOTAS, quota))
    used = {name: "1" if name in ("resourcequotas", "count/resourcequotas") else "0" for name in hard}
    status = {"status": {"hard": hard, "used": used}}
    await side.quietly(Exchange("PATCH", f"{QUOTAS}/{quota['metadata']['name']}/status", status, _MERGE))


async def _begin(side: Side, *quotas: Document) -> None:
    """Create an account and the quotas, and wait until the server has seen them: the last one shows it."""
    account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
    await side.quietly(Exchange("POST", f"/api/v1{INSIDE}/serviceaccounts", account))
    for each in (*quotas, quota(_LAST, "last")):
        await _write(side, each)
    lease = side.filled(Exchange("POST", f"{PLACES['Lease']}?dryRun=All", document("Lease")))
    with anyio.fail_after(_PATIENCE):
        while (await side.server.send(lease)).status != 403:
            await anyio.sleep(0.02)


def _created(name: str, quotas: Document | list[Document], *objects: Document, query: str = "") -> None:
    """Add a case that creates the objects one after the other."""

    async def play(side: Side) -> None:
        await _begin(side, *(quotas if isinstance(quotas, list) else [quotas]))
        for each in objects:
            found = await side.server.send(side.filled(Exchange("POST", PLACES[each["kind"]] + query, each)))
            _note(side, found.status, found.body)

    CASES.add(name, play)


def _changed(name: str, quota: Document, before: Document, *patches: Document, subresource: str = "") -> None:
    """Add a case that creates an object and changes it."""

    async def play(side: Side) -> None:
        await _begin(side, quota)
        place = PLACES[before["kind"]]
        await side.quietly(Exchange("POST", place, before))
        if before["kind"] == "PersistentVolumeClaim":
            await _bind(side, place)
        for patch in patches:
            change = Exchange("PATCH", f"{place}/{{id}}{subresource}", patch, _MERGE)
            found = await side.server.send(side.filled(change))
            _note(side, found.status, found.body)

    UPDATES.add(name, play)


async def _bind(side: Side, place: str) -> None:
    """Let a claim be one that may grow."""
    growing = {
        "kind": "StorageClass",
        "apiVersion": "storage.k8s.io/v1",
        "metadata": {"name": "{id}"},
        "provisioner": "example.com/p",
        "allowVolumeExpansion": True,
    }
    await side.quietly(Exchange("POST", "/apis/storage.k8s.io/v1/storageclasses", growing))
    status = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    await side.quietly(Exchange("PATCH", f"{place}/{{id}}/status", status, _MERGE))


def _note(side: Side, status: int, body: Document) -> None:
    """Record a refusal in full, and of what is stored only that it is."""
    if status < 400:
        side.note("stored", status)
        return
    if "name" in (body.get("details") or {}) and body["details"]["name"].startswith("pre-"):
        side.prefixes.add("pre-")
    side.note("refused", {"status": status, "body": body})


_CPU: Final[Document] = {"cpu": "600m"}
_BOTH: Final[Document] = {"cpu": "600m", "memory": "1Gi"}

_created("pods are counted", quota({"pods": "1"}), _pod(name="a"), _pod(name="b"))
_created(
    "names are sorted",
    quota({"pods": "0", "count/pods": "0", "requests.cpu": "500m", "limits.memory": "1", "cpu": "100m"}),
    _pod(_container(requests=_CPU, limits={"memory": "2Gi", "cpu": "1"})),
)
_created(
    "only what is exceeded is named",
    quota({"pods": "5", "requests.cpu": "1", "requests.memory": "8Gi"}),
    _pod(_container(requests=_BOTH), name="a"),
    _pod(_container(requests=_BOTH), name="b"),
)
_created(
    "amounts of containers are added",
    quota({"requests.memory": "3Gi"}),
    _pod(_container("a", requests=_BOTH), _container("b", requests=_BOTH), name="a"),
    _pod(_container("a", requests=_BOTH), _container("b", requests=_BOTH), name="b"),
)
_created("limits are requests", quota({"requests.cpu": "1"}), _pod(_container(limits={"cpu": "2"})))
_created(
    "containers must specify what a quota has",
    quota({"limits.cpu": "1", "memory": "1Gi", "requests.cpu": "1", "pods": "5"}),
    _pod(_container("b"), _container("a"), name="a"),
    _pod(_container("b", requests=_BOTH), initContainers=[_container("i", requests=_CPU)], name="b"),
)
_created("nothing else must be specified", quota({"ephemeral-storage": "1", "hugepages-2Mi": "2Mi"}), _pod())
_created(
    "ephemeral storage",
    quota({"requests.ephemeral-storage": "1Gi", "limits.ephemeral-storage": "2Gi", "ephemeral-storage": "1Gi"}),
    _pod(_container(requests={"ephemeral-storage": "2Gi"}, limits={"ephemeral-storage": "3Gi"})),
)
_created(
    "init containers run one after the other",
    quota({"requests.cpu": "1"}),
    _pod(
        _container(requests=_CPU),
        initContainers=[_container("i", requests=_CPU), _container("j", requests={"cpu": "900m"})],
        name="a",
    ),
    _pod(_container(requests=_CPU), initContainers=[_container("j", requests={"cpu": "1100m"})], name="b"),
)
_created(
    "sidecars run beside containers",
    quota({"requests.cpu": "1", "limits.cpu": "1"}),
    _pod(
        _container(requests=_CPU, limits=_CPU),
        initContainers=[_container("s", requests=_CPU, limits=_CPU, restartPolicy="Always")],
    ),
)
_created(
    "init containers run beside earlier sidecars",
    quota({"requests.cpu": "1"}),
    _pod(
        _container(requests={"cpu": "1m"}),
        initContainers=[
            _container("s", requests=_CPU, restartPolicy="Always"),
            _container("i", requests={"cpu": "500m"}),
        ],
    ),
)
_created(
    "resources of a whole pod",
    quota({"requests.cpu": "1", "limits.cpu": "2", "memory": "1Gi"}),
    _pod(resources={"requests": {"cpu": "1500m", "memory": "2Gi"}, "limits": {"cpu": "3", "memory": "2Gi"}}),
    _pod(_container(requests={"cpu": "3"}), resources={"requests": {"cpu": "4", "memory": "1Gi"}}, name="b"),
)
_created(
    "huge pages",
    quota({"hugepages-2Mi": "2Mi", "requests.hugepages-2Mi": "2Mi"}),
    _pod(_container(requests={**_BOTH, "hugepages-2Mi": "4Mi"}, limits={"hugepages-2Mi": "4Mi"})),
)
_created(
    "extended resources",
    quota({"requests.example.com/gpu": "1"}),
    _pod(_container(limits={"example.com/gpu": "1"}), name="a"),
    _pod(_container(limits={"example.com/gpu": "1"}), name="b"),
)
_created("no limits of extended resources", quota({"limits.example.com/gpu": "0"}), _pod())
_created(
    "best effort",
    quota({"pods": "0"}, scopes=["BestEffort"]),
    _pod(_container(requests=_CPU), name="a"),
    _pod(_container(requests={"ephemeral-storage": "1Gi"}), name="b"),
)
_created(
    "not best effort",
    quota({"pods": "0"}, scopes=["NotBestEffort"]),
    _pod(name="a"),
    _pod(initContainers=[_container("i", requests=_CPU)], name="b"),
)
_created(
    "pods with a deadline",
    [quota({"pods": "0"}, scopes=["Terminating"]), quota({"pods": "1"}, "r", scopes=["NotTerminating"])],
    _pod(name="a", activeDeadlineSeconds=5),
    _pod(name="b"),
    _pod(name="c"),
)
_created(
    "all scopes must select",
    quota({"pods": "0"}, scopes=["Terminating", "NotBestEffort"]),
    _pod(name="a", activeDeadlineSeconds=5),
    _pod(_container(requests=_CPU), name="b"),
    _pod(_container(requests=_CPU), name="c", activeDeadlineSeconds=5),
)
for _operator, _values in (
    ("In", ["system-node-critical"]),
    ("NotIn", ["system-node-critical"]),
    ("Exists", []),
    ("DoesNotExist", []),
):
    _created(
        f"a priority class: {_operator}",
        quota({"pods": "0"}, **selecting("PriorityClass", _operator, *_values)),
        _pod(name="a"),
        _pod(name="b", priorityClassName="system-node-critical"),
        _pod(name="c", priorityClassName="system-cluster-critical"),
    )
_created(
    "affinity to pods of other namespaces",
    quota({"pods": "0"}, scopes=["CrossNamespacePodAffinity"]),
    _pod(name="a"),
    _pod(name="b", **_affine("podAffinity")),
    _pod(name="c", **_affine("podAffinity", namespaces=["other"])),
    _pod(name="d", **_affine("podAntiAffinity", namespaceSelector={})),
)
_created(
    "a scope selects no other kinds",
    quota({"count/configmaps": "0", "count/pods": "0"}, scopes=["NotTerminating"]),
    document("ConfigMap"),
    _pod(),
)
_created(
    "node ports",
    quota({"services": "3", "services.nodeports": "1", "services.loadbalancers": "0"}),
    _service("a"),
    _service("b", type="NodePort"),
    _service("c", type="NodePort", ports=_PORTS[:1]),
    _service("d", type="LoadBalancer"),
    _service("e", type="LoadBalancer", allocateLoadBalancerNodePorts=False),
)
_created(
    "a load balancer without node ports",
    quota({"services.nodeports": "1", "services.loadbalancers": "5", "count/services": "9"}),
    _service("a", type="LoadBalancer"),
    _service("b", type="LoadBalancer", allocateLoadBalancerNodePorts=False),
)
_created("services", quota({"services": "1"}), _service("a"), _service("b"))
_created(
    "storage",
    quota({"requests.storage": "3Gi", "persistentvolumeclaims": "2"}),
    _claim("2Gi", "a"),
    _claim("2Gi", "b"),
    _claim("1Gi", "c"),
    _claim("1Mi", "d"),
)
_created(
    "storage of a class",
    quota(
        {
            "gold.storageclass.storage.k8s.io/requests.storage": "3Gi",
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
            "silver.storageclass.storage.k8s.io/persistentvolumeclaims": "0",
        }
    ),
    _claim("2Gi", "a"),
    _claim("2Gi", "b"),
    _claim("2Gi", "c", storageClassName="silver"),
    _claim("2Gi", "d", storageClassName="bronze"),
)
_created(
    "claims of an attributes class",
    quota({"persistentvolumeclaims": "0"}, **selecting("VolumeAttributesClass", "In", "fast")),
    _claim("1Gi", "a"),
    _claim("1Gi", "b", volumeAttributesClassName="fast"),
    _claim("1Gi", "c", volumeAttributesClassName="slow"),
)
_created(
    "objects are counted",
    quota({"configmaps": "1", "count/configmaps": "1", "count/secrets": "0", "count/jobs.batch": "0"}),
    document("ConfigMap", "a"),
    document("ConfigMap", "b"),
    document("Secret"),
    document("Job", spec={"template": {"spec": {"restartPolicy": "Never", "containers": [_container()]}}}),
)
_created(
    "legacy names",
    quota({"secrets": "0", "replicationcontrollers": "0", "resourcequotas": "2"}),
    document("Secret"),
    _controller(),
    quota({"pods": "1"}, "more"),
)
_created(
    "other names count nothing",
    quota({"count/jobs.example.com": "0", "count/services.nodeports": "0", "example.com/gpu": "0"}),
    _service(),
    _pod(_container(limits={"example.com/gpu": "1"})),
)
_created(
    "events are not counted",
    quota({"count/events": "0", "count/events.events.k8s.io": "0"}),
    document("Event", involvedObject={"namespace": "{ns}"}),
)
_created(
    "one of several quotas is exceeded",
    [quota({"pods": "5"}, "a"), quota({"pods": "0"}, "b"), quota({"services": "0"}, "c")],
    _pod(),
)
_created(
    "what is not specified is refused first",
    [quota({"pods": "0"}, "a"), quota({"cpu": "5"}, "b")],
    _pod(),
)
_created("a dry run is refused", quota({"configmaps": "0"}), document("ConfigMap"), query="?dryRun=All")
_created(
    "a dry run uses nothing",
    quota({"configmaps": "1"}),
    document("ConfigMap", "a"),
    document("ConfigMap", "b"),
    query="?dryRun=All",
)
_created(
    "a generated name",
    quota({"configmaps": "0"}),
    {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"generateName": "pre-"}},
)


@CASES.case("an applied object is refused")
async def _(side: Side) -> None:
    await _begin(side, quota({"configmaps": "0"}))
    await side.patch("apply", f"{PLACES['ConfigMap']}/{{id}}?fieldManager=m", document("ConfigMap"))


_changed(
    "a service gets node ports",
    quota({"services.nodeports": "1", "services": "1"}),
    _service(),
    {"spec": {"type": "NodePort"}},
    {"metadata": {"labels": {"a": "b"}}},
    {"spec": {"type": "NodePort", "ports": _PORTS[:1]}},
    {"spec": {"ports": _PORTS}},
)
_changed(
    "a service becomes a load balancer",
    quota({"services.loadbalancers": "0", "services.nodeports": "2"}),
    _service(type="NodePort"),
    {"spec": {"type": "LoadBalancer"}},
)
_changed(
    "a claim grows",
    quota({"requests.storage": "3Gi", "{id}.storageclass.storage.k8s.io/requests.storage": "2Gi"}),
    _claim("1Gi", storageClassName="{id}", volumeName="v"),
    {"spec": {"resources": {"requests": {"storage": "2Gi"}}}},
    {"spec": {"resources": {"requests": {"storage": "5Gi"}}}},
)
_changed(
    "a pod is resized",
    quota({"requests.cpu": "1", "requests.memory": "8Gi"}),
    _pod(_container(requests=_BOTH)),
    {"spec": {"containers": [_container(requests={"cpu": "2", "memory": "1Gi"})]}},
    subresource="/resize",
)
_changed(
    "a pod gets a deadline",
    quota({"pods": "0", "requests.cpu": "1"}, scopes=["Terminating"]),
    _pod(_container(requests=_BOTH)),
    {"spec": {"activeDeadlineSeconds": 5}},
)


@CASES.case("a change of what is only counted is free")
async def _(side: Side) -> None:
    await _begin(side, quota({"configmaps": "1", "count/configmaps": "1"}))
    await side.post(PLACES["ConfigMap"], document("ConfigMap"))
    await side.patch("merge", f"{PLACES['ConfigMap']}/{{id}}", {"data": {"a": "b"}})


@pytest.mark.parametrize("case", CASES.params())
async def test_a_quota_refuses_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """What is refused, and what is stored."""
    await judge(case)


@pytest.mark.parametrize("case", UPDATES.params())
async def test_a_quota_refuses_updates_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """Only what an object counts for more than before is requested."""
    await judge(case)
