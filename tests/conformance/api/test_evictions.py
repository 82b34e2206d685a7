# SPDX-License-Identifier: Apache-2.0
"""Evictions: disruption budgets, unhealthy pods, dry runs, preconditions and what is refused.

No controllers run on either side; the status of budgets and pods is written by the cases.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Answer, Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("evictions")
Document = dict[str, Any]

PODS: Final = "/api/v1/namespaces/{ns}/pods"
ACCOUNTS: Final = "/api/v1/namespaces/{ns}/serviceaccounts"
BUDGETS: Final = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
_LABELS: Final = {"app": "web"}
_SELECTOR: Final = {"matchLabels": _LABELS}
_SINCE: Final = "2026-01-02T03:04:05Z"


async def pod(
    side: Side,
    name: str = "p",
    *,
    phase: str = "Running",
    ready: bool = True,
    labels: Document | None = None,
    bound: bool = True,
    finalizers: list[str] | None = None,
) -> Document:
    """Create a pod in that phase, and bind it to a node that does not exist."""
    container = {"name": "c", "image": "i"}
    metadata = {"name": name, "labels": _LABELS if labels is None else labels, "finalizers": finalizers or []}
    spec = {"containers": [container], "automountServiceAccountToken": False}
    body = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}
    await side.quietly(Exchange("POST", PODS, body))
    if bound:
        target = {"kind": "Node", "name": "nowhere"}
        binding = {"kind": "Binding", "apiVersion": "v1", "metadata": {"name": name}, "target": target}
        await side.quietly(Exchange("POST", f"{PODS}/{name}/binding", binding))
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": _SINCE}]
    return await _status(side, f"{PODS}/{name}", {"phase": phase, "conditions": conditions})


async def budget(side: Side, name: str = "b", *, allowed: int = 0, spec: Document | None = None, **status: Any) -> None:
    """Create a budget with that status; it has seen its spec unless told otherwise."""
    made = {"minAvailable": 1, "selector": _SELECTOR, **(spec or {})}
    if made["selector"] is None:
        del made["selector"]
    body = {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {"name": name}, "spec": made}
    await side.quietly(Exchange("POST", BUDGETS, body))
    counts = {"currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "observedGeneration": 1}
    await _status(side, f"{BUDGETS}/{name}", {**counts, "disruptionsAllowed": allowed, **status})


async def _status(side: Side, path: str, status: Document) -> Document:
    change = Exchange("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")
    found: Document = (await side.quietly(change)).body
    return found


async def evict(side: Side, name: str = "p", query: str = "", **fields: Any) -> Answer:
    """Evict a pod; `fields` are more of the eviction's."""
    body = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name}, **fields}
    return await side.post(f"{PODS}/{name}/eviction{query}", body)


async def look(side: Side, *names: str) -> None:
    """What there is afterwards: the pods and the budgets."""
    for name in names or ("p",):
        await side.get(f"{PODS}/{name}")
    await side.get(BUDGETS)


@CASES.case("a pod that is not bound goes at once")
async def _(side: Side) -> None:
    await pod(side, phase="Pending", bound=False)
    await evict(side)
    await look(side)
    await evict(side)


@CASES.case("a pod of a node goes after its grace period")
async def _(side: Side) -> None:
    for name, options in (("p", {}), ("q", {"gracePeriodSeconds": 7}), ("r", {"gracePeriodSeconds": 0})):
        await pod(side, name)
        await evict(side, name, deleteOptions=options)
    await look(side, "p", "q", "r")


for _phase in ("Pending", "Succeeded", "Failed"):

    @CASES.case(f"a pod that is {_phase} needs no budget")
    async def _(side: Side, phase: str = _phase) -> None:
        await budget(side)
        await pod(side, phase=phase, ready=False)
        await evict(side)
        await look(side)


@CASES.case("the condition of an evicted pod replaces an older one")
async def _(side: Side) -> None:
    for name, state in (("p", "True"), ("q", "False")):
        await pod(side, name)
        old = {"type": "DisruptionTarget", "status": state, "reason": "R", "message": "m", "lastTransitionTime": _SINCE}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": _SINCE, "observedGeneration": 1}
        await _status(side, f"{PODS}/{name}", {"conditions": [old, ready], "observedGeneration": 1})
        await evict(side, name)
        found = (await side.server.send(side.filled(Exchange("GET", f"{PODS}/{name}")))).body
        side.note("kept its time", found["status"]["conditions"][0]["lastTransitionTime"] == _SINCE)
    await look(side, "p", "q")


@CASES.case("a pod that is being deleted needs no budget")
async def _(side: Side) -> None:
    await budget(side)
    await pod(side)
    await side.quietly(Exchange("DELETE", f"{PODS}/p"))
    await evict(side)
    await evict(side, deleteOptions={"gracePeriodSeconds": 3})
    await look(side)


@CASES.case("a pod with a finalizer stays")
async def _(side: Side) -> None:
    await pod(side, finalizers=["conformance.test/one"])
    await evict(side)
    await evict(side, deleteOptions={"gracePeriodSeconds": 0})
    await look(side)


@CASES.case("a budget that allows none refuses")
async def _(side: Side) -> None:
    await budget(side)
    await pod(side)
    await evict(side)
    await look(side)


@CASES.case("a budget that lacks healthy pods refuses")
async def _(side: Side) -> None:
    await budget(side, currentHealthy=1, desiredHealthy=3)
    await pod(side)
    await evict(side)


@CASES.case("a budget whose count failed says why it refuses")
async def _(side: Side) -> None:
    condition = {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "SyncFailed",
        "message": "found no controllers",
        "lastTransitionTime": _SINCE,
    }
    await budget(side, conditions=[condition], currentHealthy=0)
    await pod(side)
    await evict(side)


@CASES.case("a budget that was not counted yet refuses")
async def _(side: Side) -> None:
    await budget(side, allowed=1)
    await side.quietly(Exchange("PATCH", f"{BUDGETS}/b", {"spec": {"minAvailable": 3}}, "application/merge-patch+json"))
    await pod(side)
    await evict(side)
    await look(side)


@CASES.case("a budget never counts less than none")
async def _(side: Side) -> None:
    await budget(side)
    counts = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
    await side.patch("merge", f"{BUDGETS}/b/status", {"status": dict.fromkeys(counts, -1)})


@CASES.case("a budget is used up")
async def _(side: Side) -> None:
    condition = {
        "type": "DisruptionAllowed",
        "status": "True",
        "reason": "SufficientPods",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": _SINCE,
    }
    await budget(side, allowed=2, conditions=[condition])
    for name in ("p", "q", "r"):
        await pod(side, name)
        await evict(side, name)
    await look(side, "p", "q", "r")


@CASES.case("a budget without conditions is used up")
async def _(side: Side) -> None:
    await budget(side, allowed=1)
    await pod(side)
    await evict(side)
    await look(side)


@CASES.case("a pod of two budgets is not evicted")
async def _(side: Side) -> None:
    await budget(side, allowed=1)
    await budget(side, "c", allowed=1)
    await pod(side)
    await evict(side)
    await evict(side, deleteOptions={"dryRun": ["All"]})
    await look(side)


for _what, _selector in {
    "all pods": {},
    "no pods": None,
    "other pods": {"matchLabels": {"app": "other"}},
    "pods by an expression": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
}.items():

    @CASES.case(f"a budget selects {_what}")
    async def _(side: Side, selector: Document | None = _selector) -> None:
        await budget(side, spec={"selector": selector})
        await pod(side)
        await pod(side, "plain", labels={})
        await evict(side)
        await evict(side, "plain")


for _policy in (None, "IfHealthyBudget", "AlwaysAllow"):
    for _counts in ((2, 1), (1, 2), (0, 0)):

        @CASES.case(f"an unhealthy pod of a budget with policy {_policy} that has {_counts[0]} of {_counts[1]}")
        async def _(side: Side, policy: str | None = _policy, counts: tuple[int, int] = _counts) -> None:
            spec = {"unhealthyPodEvictionPolicy": policy} if policy else {}
            await budget(side, spec=spec, currentHealthy=counts[0], desiredHealthy=counts[1])
            await pod(side, ready=False)
            await evict(side)
            await look(side)


@CASES.case("an unhealthy pod of a budget that was not counted yet")
async def _(side: Side) -> None:
    await budget(side, spec={"unhealthyPodEvictionPolicy": "AlwaysAllow"}, observedGeneration=0)
    await pod(side, ready=False)
    await evict(side, deleteOptions={"dryRun": ["All"]})
    await evict(side)


_DRY: Final = {"dryRun": ["All"]}
for _what, _query, _options in (
    ("its options", "", _DRY),
    ("the parameter", "?dryRun=All", None),
    ("the parameter beside options", "?dryRun=All", {"gracePeriodSeconds": 5}),
    ("both", "?dryRun=All", _DRY),
):

    @CASES.case(f"a dry run by {_what} changes nothing")
    async def _(side: Side, query: str = _query, options: Document | None = _options) -> None:
        more = {} if options is None else {"deleteOptions": options}
        await budget(side, allowed=1)
        await pod(side)
        await pod(side, "pending", phase="Pending", bound=False, ready=False)
        await pod(side, "unready", ready=False)
        for name in ("p", "pending", "unready", "nosuch"):
            await evict(side, name, query, **more)
        await look(side, "p", "pending", "unready")
        await _status(side, f"{BUDGETS}/b", {"disruptionsAllowed": 0})
        await evict(side, "p", query, **more)
        await look(side)


@CASES.case("dry runs of strange values are refused")
async def _(side: Side) -> None:
    await pod(side)
    await evict(side, deleteOptions={"dryRun": ["Some"]})
    await evict(side, "p", "?dryRun=Some")
    await evict(side, "p", "?dryRun=All", deleteOptions={"dryRun": ["All", "All"]})
    await evict(side, "p", "?dryRun=All&dryRun=All", deleteOptions=_DRY)
    await look(side)


for _ready in (True, False):

    @CASES.case(f"another pod than the one that is meant, {'ready' if _ready else 'not ready'}")
    async def _(side: Side, ready: bool = _ready) -> None:
        await budget(side, allowed=5)
        await pod(side, ready=ready)
        wrong = {"preconditions": {"uid": "other"}}
        await evict(side, deleteOptions={**wrong, **_DRY})
        await look(side)
        await evict(side, deleteOptions=wrong)
        await look(side)

    for _phase in ("Running", "Pending", "Failed"):

        @CASES.case(f"another version of a pod that is {_phase}, {'ready' if _ready else 'not ready'}")
        async def _(side: Side, ready: bool = _ready, phase: str = _phase) -> None:
            await budget(side, allowed=5)
            await pod(side, phase=phase, ready=ready)
            await look(side)
            wrong = {"preconditions": {"resourceVersion": "1"}}
            await evict(side, deleteOptions={**wrong, **_DRY})
            await evict(side, deleteOptions=wrong)
            await look(side)

        @CASES.case(f"the pod that is meant, {_phase} and {'ready' if _ready else 'not ready'}")
        async def _(side: Side, ready: bool = _ready, phase: str = _phase) -> None:
            await budget(side, allowed=5)
            made = await pod(side, phase=phase, ready=ready)
            right = {name: made["metadata"][name] for name in ("uid", "resourceVersion")}
            await evict(side, deleteOptions={"preconditions": right, "gracePeriodSeconds": 9})
            await look(side)


@CASES.case("options of deletion are checked")
async def _(side: Side) -> None:
    await pod(side)
    await evict(side, deleteOptions={"propagationPolicy": "Whim"})
    await evict(side, deleteOptions={"propagationPolicy": "Orphan", "orphanDependents": True})
    await evict(side, deleteOptions={"gracePeriodSeconds": "x"})
    await evict(side, deleteOptions={"gracePeriodSeconds": -3, "propagationPolicy": "Foreground"})
    await look(side)


@CASES.case("bodies of evictions")
async def _(side: Side) -> None:
    await pod(side)
    path = f"{PODS}/p/eviction"
    await side.post(path, {})
    await side.post(path, {"metadata": {"name": "q"}})
    await side.post(path, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}})
    await side.post(path, {"kind": "Eviction", "apiVersion": "v1", "metadata": {"name": "p"}})
    await side.post(path, {"kind": "Eviction", "apiVersion": "policy/v2", "metadata": {"name": "p"}})
    await evict(side, spec={"more": 1}, deleteOptions={"dryRun": ["All"], "more": 1})
    await evict(side, "p", "?fieldValidation=Strict", spec={"more": 1})
    await evict(side, "p", metadata={"name": "p", "namespace": "other"})
    await look(side)
    await side.get(path)
    await side.delete(path)
    await evict(side, "nosuch")
    await side.post(path, {"kind": "Eviction", "apiVersion": "policy/v1beta1", "metadata": {"name": "p"}})
    await look(side)


@CASES.case("an eviction needs neither kind nor version")
async def _(side: Side) -> None:
    await pod(side)
    await side.post(f"{PODS}/p/eviction", {"metadata": {"name": "p"}})
    await look(side)


_POLICY: Final = {
    "kind": "ValidatingAdmissionPolicy",
    "apiVersion": "admissionregistration.k8s.io/v1",
    "metadata": {"name": "{id}"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods/eviction"]}
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
        },
        "validations": [
            {
                "expression": "object.metadata.name != 'p'",
                "messageExpression": "'no eviction: ' + string(request.dryRun) + ' ' + request.kind.kind + ' ' + "
                "request.subResource + ' ' + request.name",
            }
        ],
    },
}


@CASES.case("a policy refuses evictions")
async def _(side: Side) -> None:
    place = "/apis/admissionregistration.k8s.io/v1"
    await side.quietly(Exchange("POST", f"{place}/validatingadmissionpolicies", _POLICY))
    binding = {
        "kind": "ValidatingAdmissionPolicyBinding",
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": "{id}"},
        "spec": {"policyName": "{id}", "validationActions": ["Deny"]},
    }
    await side.quietly(Exchange("POST", f"{place}/validatingadmissionpolicybindings", binding))
    await pod(side)
    await pod(side, "q")
    probe = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}, "deleteOptions": _DRY}
    async with asyncio.timeout(30):
        # A real server needs a moment until a policy holds.
        while (await side.server.send(side.filled(Exchange("POST", f"{PODS}/p/eviction", probe)))).status != 422:
            await asyncio.sleep(0.1)
    await evict(side)
    await evict(side, deleteOptions=_DRY)
    await evict(side, "p", "?dryRun=All")
    await evict(side, "q")
    await look(side, "p", "q")


@pytest.mark.parametrize("case", CASES.params())
async def test_evictions_are_those_of_a_real_server(judge: Judge, case: Case) -> None:
    """Pods, budgets and answers."""

    async def play(side: Side) -> None:
        await side.quietly(Exchange("POST", ACCOUNTS, {"metadata": {"name": "default"}}))
        await case.play(side)

    await judge(Case(case.topic, case.name, play))
