# SPDX-License-Identifier: Apache-2.0
"""What ResourceQuotas refuse, and which ResourceQuotas are refused.

The real side runs without controllers, so each case writes the status of its quotas: nothing is used at first.
"""

from __future__ import annotations

from typing import Any, Final

import anyio
import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("quotas")
UPDATES = Cases("quotas of updates")
Document = dict[str, Any]
Step = tuple[str, Document]
"""What is created: the name of a place, and the object."""

_MERGE: Final = "application/merge-patch+json"
_INSIDE: Final = "/namespaces/{ns}"
_QUOTAS: Final = f"/api/v1{_INSIDE}/resourcequotas"
_PLACES: Final[dict[str, str]] = {
    "Pod": f"/api/v1{_INSIDE}/pods",
    "Service": f"/api/v1{_INSIDE}/services",
    "ConfigMap": f"/api/v1{_INSIDE}/configmaps",
    "Secret": f"/api/v1{_INSIDE}/secrets",
    "ReplicationController": f"/api/v1{_INSIDE}/replicationcontrollers",
    "PersistentVolumeClaim": f"/api/v1{_INSIDE}/persistentvolumeclaims",
    "ResourceQuota": _QUOTAS,
    "Job": f"/apis/batch/v1{_INSIDE}/jobs",
    "Lease": f"/apis/coordination.k8s.io/v1{_INSIDE}/leases",
    "Event": f"/api/v1{_INSIDE}/events",
}
_LAST: Final[Document] = {"count/leases.coordination.k8s.io": "0"}
_PATIENCE: Final = 20.0
_PORTS: Final = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]


def _document(kind: str, name: str = "{id}", **more: Any) -> Document:
    version = _PLACES[kind].removeprefix("/apis/").removeprefix("/api/").partition(_INSIDE)[0]
    return {"kind": kind, "apiVersion": version, "metadata": {"name": name}, **more}


def _quota(hard: Document, name: str = "q", **spec: Any) -> Document:
    return _document("ResourceQuota", name, spec={"hard": hard, **spec})


def _selecting(scope: str, operator: str, *values: str) -> Document:
    term = {"scopeName": scope, "operator": operator, **({"values": [*values]} if values else {})}
    return {"scopeSelector": {"matchExpressions": [term]}}


def _container(name: str = "c", requests: Document | None = None, limits: Document | None = None, **more: Any) -> Any:
    amounts = {**({"requests": requests} if requests else {}), **({"limits": limits} if limits else {})}
    return {"name": name, "image": "i", **({"resources": amounts} if amounts else {}), **more}


def _pod(*containers: Document, name: str = "{id}", **spec: Any) -> Document:
    base = {"restartPolicy": "Never", "automountServiceAccountToken": False}
    return _document("Pod", name, spec={**base, "containers": [*(containers or (_container(),))], **spec})


def _service(name: str = "{id}", **spec: Any) -> Document:
    return _document("Service", name, spec={"ports": _PORTS, **spec})


def _claim(storage: str, name: str = "{id}", **spec: Any) -> Document:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    return _document("PersistentVolumeClaim", name, spec={**wanted, "storageClassName": "gold", **spec})


def _controller() -> Document:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [_container()]}}
    return _document("ReplicationController", spec={"selector": {"a": "b"}, "template": template})


def _affine(side: str, **term: Any) -> Document:
    full = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}, **term}
    if side == "podAffinity":
        return {"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [full]}}}
    weighted = [{"weight": 1, "podAffinityTerm": full}]
    return {"affinity": {side: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}


async def _write(side: Side, quota: Document) -> None:
    """Create a quota whose status says that nothing is used but the quota itself."""
    hard = quota["spec"]["hard"]
    await side.quietly(Exchange("POST", _QUOTAS, quota))
    used = {name: "1" if name in ("resourcequotas", "count/resourcequotas") else "0" for name in hard}
    status = {"status": {"hard": hard, "used": used}}
    await side.quietly(Exchange("PATCH", f"{_QUOTAS}/{quota['metadata']['name']}/status", status, _MERGE))


async def _begin(side: Side, *quotas: Document) -> None:
    """Create an account and the quotas, and wait until the server has seen them: the last one shows it."""
    account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
    await side.quietly(Exchange("POST", f"/api/v1{_INSIDE}/serviceaccounts", account))
    for quota in (*quotas, _quota(_LAST, "last")):
        await _write(side, quota)
    lease = side.filled(Exchange("POST", f"{_PLACES['Lease']}?dryRun=All", _document("Lease")))
    with anyio.fail_after(_PATIENCE):
        while (await side.server.send(lease)).status != 403:
            await anyio.sleep(0.02)


def _created(name: str, quotas: Document | list[Document], *objects: Document, query: str = "") -> None:
    """Add a case that creates the objects one after the other."""

    async def play(side: Side) -> None:
        await _begin(side, *(quotas if isinstance(quotas, list) else [quotas]))
        for each in objects:
            found = await side.server.send(side.filled(Exchange("POST", _PLACES[each["kind"]] + query, each)))
            _note(side, found.status, found.body)

    CASES.add(name, play)


def _changed(name: str, quota: Document, before: Document, *patches: Document, subresource: str = "") -> None:
    """Add a case that creates an object and changes it."""

    async def play(side: Side) -> None:
        await _begin(side, quota)
        place = _PLACES[before["kind"]]
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

_created("pods are counted", _quota({"pods": "1"}), _pod(name="a"), _pod(name="b"))
_created(
    "names are sorted",
    _quota({"pods": "0", "count/pods": "0", "requests.cpu": "500m", "limits.memory": "1", "cpu": "100m"}),
    _pod(_container(requests=_CPU, limits={"memory": "2Gi", "cpu": "1"})),
)
_created(
    "only what is exceeded is named",
    _quota({"pods": "5", "requests.cpu": "1", "requests.memory": "8Gi"}),
    _pod(_container(requests=_BOTH), name="a"),
    _pod(_container(requests=_BOTH), name="b"),
)
_created(
    "amounts of containers are added",
    _quota({"requests.memory": "3Gi"}),
    _pod(_container("a", requests=_BOTH), _container("b", requests=_BOTH), name="a"),
    _pod(_container("a", requests=_BOTH), _container("b", requests=_BOTH), name="b"),
)
_created("limits are requests", _quota({"requests.cpu": "1"}), _pod(_container(limits={"cpu": "2"})))
_created(
    "containers must specify what a quota has",
    _quota({"limits.cpu": "1", "memory": "1Gi", "requests.cpu": "1", "pods": "5"}),
    _pod(_container("b"), _container("a"), name="a"),
    _pod(_container("b", requests=_BOTH), initContainers=[_container("i", requests=_CPU)], name="b"),
)
_created("nothing else must be specified", _quota({"ephemeral-storage": "1", "hugepages-2Mi": "2Mi"}), _pod())
_created(
    "ephemeral storage",
    _quota({"requests.ephemeral-storage": "1Gi", "limits.ephemeral-storage": "2Gi", "ephemeral-storage": "1Gi"}),
    _pod(_container(requests={"ephemeral-storage": "2Gi"}, limits={"ephemeral-storage": "3Gi"})),
)
_created(
    "init containers run one after the other",
    _quota({"requests.cpu": "1"}),
    _pod(
        _container(requests=_CPU),
        initContainers=[_container("i", requests=_CPU), _container("j", requests={"cpu": "900m"})],
        name="a",
    ),
    _pod(_container(requests=_CPU), initContainers=[_container("j", requests={"cpu": "1100m"})], name="b"),
)
_created(
    "sidecars run beside containers",
    _quota({"requests.cpu": "1", "limits.cpu": "1"}),
    _pod(
        _container(requests=_CPU, limits=_CPU),
        initContainers=[_container("s", requests=_CPU, limits=_CPU, restartPolicy="Always")],
    ),
)
_created(
    "init containers run beside earlier sidecars",
    _quota({"requests.cpu": "1"}),
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
    _quota({"requests.cpu": "1", "limits.cpu": "2", "memory": "1Gi"}),
    _pod(resources={"requests": {"cpu": "1500m", "memory": "2Gi"}, "limits": {"cpu": "3", "memory": "2Gi"}}),
    _pod(_container(requests={"cpu": "3"}), resources={"requests": {"cpu": "4", "memory": "1Gi"}}, name="b"),
)
_created(
    "huge pages",
    _quota({"hugepages-2Mi": "2Mi", "requests.hugepages-2Mi": "2Mi"}),
    _pod(_container(requests={**_BOTH, "hugepages-2Mi": "4Mi"}, limits={"hugepages-2Mi": "4Mi"})),
)
_created(
    "extended resources",
    _quota({"requests.example.com/gpu": "1"}),
    _pod(_container(limits={"example.com/gpu": "1"}), name="a"),
    _pod(_container(limits={"example.com/gpu": "1"}), name="b"),
)
_created("no limits of extended resources", _quota({"limits.example.com/gpu": "0"}), _pod())
_created(
    "best effort",
    _quota({"pods": "0"}, scopes=["BestEffort"]),
    _pod(_container(requests=_CPU), name="a"),
    _pod(_container(requests={"ephemeral-storage": "1Gi"}), name="b"),
)
_created(
    "not best effort",
    _quota({"pods": "0"}, scopes=["NotBestEffort"]),
    _pod(name="a"),
    _pod(initContainers=[_container("i", requests=_CPU)], name="b"),
)
_created(
    "pods with a deadline",
    [_quota({"pods": "0"}, scopes=["Terminating"]), _quota({"pods": "1"}, "r", scopes=["NotTerminating"])],
    _pod(name="a", activeDeadlineSeconds=5),
    _pod(name="b"),
    _pod(name="c"),
)
_created(
    "all scopes must select",
    _quota({"pods": "0"}, scopes=["Terminating", "NotBestEffort"]),
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
        _quota({"pods": "0"}, **_selecting("PriorityClass", _operator, *_values)),
        _pod(name="a"),
        _pod(name="b", priorityClassName="system-node-critical"),
        _pod(name="c", priorityClassName="system-cluster-critical"),
    )
_created(
    "affinity to pods of other namespaces",
    _quota({"pods": "0"}, scopes=["CrossNamespacePodAffinity"]),
    _pod(name="a"),
    _pod(name="b", **_affine("podAffinity")),
    _pod(name="c", **_affine("podAffinity", namespaces=["other"])),
    _pod(name="d", **_affine("podAntiAffinity", namespaceSelector={})),
)
_created(
    "a scope selects no other kinds",
    _quota({"count/configmaps": "0", "count/pods": "0"}, scopes=["NotTerminating"]),
    _document("ConfigMap"),
    _pod(),
)
_created(
    "node ports",
    _quota({"services": "3", "services.nodeports": "1", "services.loadbalancers": "0"}),
    _service("a"),
    _service("b", type="NodePort"),
    _service("c", type="NodePort", ports=_PORTS[:1]),
    _service("d", type="LoadBalancer"),
    _service("e", type="LoadBalancer", allocateLoadBalancerNodePorts=False),
)
_created(
    "a load balancer without node ports",
    _quota({"services.nodeports": "1", "services.loadbalancers": "5", "count/services": "9"}),
    _service("a", type="LoadBalancer"),
    _service("b", type="LoadBalancer", allocateLoadBalancerNodePorts=False),
)
_created("services", _quota({"services": "1"}), _service("a"), _service("b"))
_created(
    "storage",
    _quota({"requests.storage": "3Gi", "persistentvolumeclaims": "2"}),
    _claim("2Gi", "a"),
    _claim("2Gi", "b"),
    _claim("1Gi", "c"),
    _claim("1Mi", "d"),
)
_created(
    "storage of a class",
    _quota(
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
    _quota({"persistentvolumeclaims": "0"}, **_selecting("VolumeAttributesClass", "In", "fast")),
    _claim("1Gi", "a"),
    _claim("1Gi", "b", volumeAttributesClassName="fast"),
    _claim("1Gi", "c", volumeAttributesClassName="slow"),
)
_created(
    "objects are counted",
    _quota({"configmaps": "1", "count/configmaps": "1", "count/secrets": "0", "count/jobs.batch": "0"}),
    _document("ConfigMap", "a"),
    _document("ConfigMap", "b"),
    _document("Secret"),
    _document("Job", spec={"template": {"spec": {"restartPolicy": "Never", "containers": [_container()]}}}),
)
_created(
    "legacy names",
    _quota({"secrets": "0", "replicationcontrollers": "0", "resourcequotas": "2"}),
    _document("Secret"),
    _controller(),
    _quota({"pods": "1"}, "more"),
)
_created(
    "other names count nothing",
    _quota({"count/jobs.example.com": "0", "count/services.nodeports": "0", "example.com/gpu": "0"}),
    _service(),
    _pod(_container(limits={"example.com/gpu": "1"})),
)
_created(
    "events are not counted",
    _quota({"count/events": "0", "count/events.events.k8s.io": "0"}),
    _document("Event", involvedObject={"namespace": "{ns}"}),
)
_created(
    "one of several quotas is exceeded",
    [_quota({"pods": "5"}, "a"), _quota({"pods": "0"}, "b"), _quota({"services": "0"}, "c")],
    _pod(),
)
_created(
    "what is not specified is refused first",
    [_quota({"pods": "0"}, "a"), _quota({"cpu": "5"}, "b")],
    _pod(),
)
_created("a dry run is refused", _quota({"configmaps": "0"}), _document("ConfigMap"), query="?dryRun=All")
_created(
    "a dry run uses nothing",
    _quota({"configmaps": "1"}),
    _document("ConfigMap", "a"),
    _document("ConfigMap", "b"),
    query="?dryRun=All",
)
_created(
    "a generated name",
    _quota({"configmaps": "0"}),
    {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"generateName": "pre-"}},
)


@CASES.case("an applied object is refused")
async def _(side: Side) -> None:
    await _begin(side, _quota({"configmaps": "0"}))
    await side.patch("apply", f"{_PLACES['ConfigMap']}/{{id}}?fieldManager=m", _document("ConfigMap"))


_changed(
    "a service gets node ports",
    _quota({"services.nodeports": "1", "services": "1"}),
    _service(),
    {"spec": {"type": "NodePort"}},
    {"metadata": {"labels": {"a": "b"}}},
    {"spec": {"type": "NodePort", "ports": _PORTS[:1]}},
    {"spec": {"ports": _PORTS}},
)
_changed(
    "a service becomes a load balancer",
    _quota({"services.loadbalancers": "0", "services.nodeports": "2"}),
    _service(type="NodePort"),
    {"spec": {"type": "LoadBalancer"}},
)
_changed(
    "a claim grows",
    _quota({"requests.storage": "3Gi", "{id}.storageclass.storage.k8s.io/requests.storage": "2Gi"}),
    _claim("1Gi", storageClassName="{id}", volumeName="v"),
    {"spec": {"resources": {"requests": {"storage": "2Gi"}}}},
    {"spec": {"resources": {"requests": {"storage": "5Gi"}}}},
)
_changed(
    "a pod is resized",
    _quota({"requests.cpu": "1", "requests.memory": "8Gi"}),
    _pod(_container(requests=_BOTH)),
    {"spec": {"containers": [_container(requests={"cpu": "2", "memory": "1Gi"})]}},
    subresource="/resize",
)
_changed(
    "a pod gets a deadline",
    _quota({"pods": "0", "requests.cpu": "1"}, scopes=["Terminating"]),
    _pod(_container(requests=_BOTH)),
    {"spec": {"activeDeadlineSeconds": 5}},
)


@CASES.case("a change of what is only counted is free")
async def _(side: Side) -> None:
    await _begin(side, _quota({"configmaps": "1", "count/configmaps": "1"}))
    await side.post(_PLACES["ConfigMap"], _document("ConfigMap"))
    await side.patch("merge", f"{_PLACES['ConfigMap']}/{{id}}", {"data": {"a": "b"}})


_INVALID: Final[dict[str, Document]] = {
    "of an unknown scope": _quota({"pods": "1"}, scopes=["Whim"]),
    "of conflicting scopes": _quota({"pods": "1"}, scopes=["BestEffort", "NotBestEffort"]),
    "of two pairs of conflicting scopes": _quota(
        {"pods": "1"}, scopes=["BestEffort", "NotBestEffort", "Terminating", "NotTerminating"]
    ),
    "of best effort with cpu": _quota({"pods": "1", "cpu": "1"}, scopes=["BestEffort"]),
    "of a scope with services": _quota({"services": "1", "secrets": "1"}, scopes=["NotTerminating"]),
    "of a scope with ephemeral storage": _quota({"ephemeral-storage": "1"}, scopes=["NotBestEffort"]),
    "of a scope with huge pages": _quota({"hugepages-2Mi": "1"}, scopes=["NotBestEffort"]),
    "of a scope with counts": _quota({"count/pods": "1", "example.com/a": "1"}, scopes=["BestEffort"]),
    "of a scope of claims with pods": _quota({"pods": "1"}, scopes=["VolumeAttributesClass"]),
    "of a scope of claims": _quota({"persistentvolumeclaims": "1"}, scopes=["VolumeAttributesClass"]),
    "of a selector of an unknown scope": _quota({"pods": "1"}, **_selecting("Whim", "Exists")),
    "of a selector that does not fit": _quota({"services": "1"}, **_selecting("PriorityClass", "In", "a")),
    "of a selector of another operator": _quota({"pods": "1"}, **_selecting("BestEffort", "DoesNotExist")),
    "of a selector of a strange operator": _quota({"pods": "1"}, **_selecting("PriorityClass", "Whim")),
    "of a selector without values": _quota({"pods": "1"}, **_selecting("PriorityClass", "In")),
    "of a selector of values that exist": _quota({"pods": "1"}, **_selecting("PriorityClass", "Exists", "a")),
    "of a selector of conflicting scopes": _quota(
        {"pods": "1"},
        scopeSelector={
            "matchExpressions": [
                {"scopeName": name, "operator": "Exists"} for name in ("Terminating", "NotTerminating")
            ]
        },
    ),
    "of storage": _quota({"storage": "1"}),
    "of limits of storage": _quota({"limits.storage": "1"}),
    "of a bad domain": _quota({"a_b/c": "1"}),
    "of two slashes": _quota({"a/b/c": "1"}),
    "of half a service": _quota({"services.nodeports": "1.5"}),
    "of half a job": _quota({"count/jobs.batch": "500m"}),
    "of half a replication controller": _quota({"replicationcontrollers": "500m"}),
    "of half an extended resource": _quota({"requests.example.com/gpu": "500m"}),
    "of half of something": _quota({"example.com/gpu": "500m"}),
    "of a negative amount": _quota({"requests.memory": "-1Gi"}),
    "of more requests than limits": _quota(
        {"requests.cpu": "2", "limits.cpu": "1", "memory": "2Gi", "limits.memory": "1Gi"}
    ),
    "of more storage than its limit": _quota({"requests.ephemeral-storage": "2", "limits.ephemeral-storage": "1"}),
    "of fine amounts": _quota({"cpu": "1001u", "requests.memory": "1.0001Ki", "pods": "1e1"}),
    "of nothing": _document("ResourceQuota", "q", spec={}),
    "without a spec": _document("ResourceQuota", "q"),
}
for _name, _body in _INVALID.items():
    CASES.exchanges(f"a quota {_name} is made", Exchange("POST", _QUOTAS, _body))


def _patched(name: str, before: Document, *patches: Document, subresource: str = "") -> None:
    steps = [Exchange("PATCH", f"{_QUOTAS}/q{subresource}", patch, _MERGE) for patch in patches]
    CASES.exchanges(name, Exchange("POST", _QUOTAS, before), *steps)


_patched(
    "scopes do not change",
    _quota({"pods": "1"}, scopes=["Terminating"]),
    {"spec": {"scopes": ["NotTerminating"]}},
    {"spec": {"scopes": None}},
    {"spec": {"scopes": ["Terminating", "Terminating"]}},
    {"spec": {"hard": {"services": "1"}}},
    {"spec": {"hard": {"cpu": "1"}}},
)
_patched(
    "a selector changes",
    _quota({"pods": "1"}, **_selecting("PriorityClass", "Exists")),
    {"spec": _selecting("PriorityClass", "In", "a")},
    {"spec": {"scopeSelector": None}},
    {"spec": {"hard": {"requests.cpu": "2", "limits.cpu": "1"}}},
)
_patched(
    "the status has what may be in a quota",
    _quota({"pods": "1"}),
    {"status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}},
    {"status": {"used": {"pods": "1.5"}}},
    {"status": {"used": {"whim": "1"}}},
    {"status": {"hard": {"memory": "-1"}}},
    {"status": {"used": {"requests.memory": "1024Mi"}}},
    subresource="/status",
)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_quota_refuses_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """What is refused, and what is stored."""
    await judge(case)


@pytest.mark.parametrize("case", UPDATES.params())
async def test_a_quota_refuses_updates_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """Only what an object counts for more than before is requested."""
    await judge(case)
