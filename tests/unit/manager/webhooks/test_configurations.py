# SPDX-License-Identifier: Apache-2.0
"""The webhook configurations and the conversion stanza."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from devcluster.apiserver.cel.compile import Expression
from manager.webhooks.configurations import (
    KUEUE_HOOKS,
    WebhookClientConfig,
    adoption_hooks,
    configurations,
    conversion_patch,
    job_hooks,
)
from multikueue.api.admission import refusals
from multikueue.api.featuregates import default as default_gate
from multikueue.api.resource import WORKLOADS
from multikueue.jobs.framework.registry import JobRegistry

JOBS_ALONE = JobRegistry(("batch/job",))
HOOKS = (*KUEUE_HOOKS, *adoption_hooks(JOBS_ALONE), *job_hooks(JOBS_ALONE))
MANAGER = "system:serviceaccount:kueue-system:'quoted'"
BY_URL = WebhookClientConfig(ca_bundle="Q0E=", url="https://127.0.0.1:9443/")
BY_SERVICE = WebhookClientConfig(ca_bundle="Q0E=", service="hook", namespace="kueue-system")


def entries(target: WebhookClientConfig, name: str) -> dict[str, dict[str, Any]]:
    for _, body in configurations(HOOKS, target, excluded=("kube-system", "kueue-system"), user=MANAGER):
        if name in body["metadata"]["name"]:
            return {entry["name"]: entry for entry in body["webhooks"]}
    raise AssertionError(name)


def test_paths_and_names_are_kueue_s() -> None:
    mutating = entries(BY_URL, "mutating")
    assert {name: entry["clientConfig"]["url"] for name, entry in mutating.items()} == {
        "mworkload.kb.io": "https://127.0.0.1:9443/mutate-kueue-x-k8s-io-v1beta2-workload",
        "mclusterqueue.kb.io": "https://127.0.0.1:9443/mutate-kueue-x-k8s-io-v1beta2-clusterqueue",
        "mresourceflavor.kb.io": "https://127.0.0.1:9443/mutate-kueue-x-k8s-io-v1beta2-resourceflavor",
        "mjob.kb.io": "https://127.0.0.1:9443/mutate-batch-v1-job",
        "madoptionworkload.kb.io": "https://127.0.0.1:9443/mutate-adoption-kueue-x-k8s-io-v1beta2-workload",
        "madoptionjob.kb.io": "https://127.0.0.1:9443/mutate-adoption-batch-v1-job",
    }


def test_by_service_the_service_is_named() -> None:
    client = entries(BY_SERVICE, "validating")["vcohort.kb.io"]["clientConfig"]
    assert client == {
        "service": {
            "name": "hook",
            "namespace": "kueue-system",
            "path": "/validate-kueue-x-k8s-io-v1beta2-cohort",
            "port": 443,
        },
        "caBundle": "Q0E=",
    }


def test_jobs_of_system_namespaces_are_not_asked_about() -> None:
    selector = entries(BY_URL, "mutating")["mjob.kb.io"]["namespaceSelector"]
    assert selector["matchExpressions"][0]["values"] == ["kube-system", "kueue-system"]


def asked(
    hook: dict[str, Any], request: dict[str, Any], new: dict[str, Any], old: dict[str, Any] | None = None
) -> bool:
    """Whether the API server asks about a write, by the conditions of the webhook."""
    variables = {"request": request, "object": new, "oldObject": old}
    return all(
        Expression(condition["expression"], variables=frozenset(variables)).evaluate(variables)
        for condition in hook["matchConditions"]
    )


RESERVED = {"metadata": {"labels": {"a": "b"}, "finalizers": ["in-use"]}, "spec": {"podSets": [{"name": "main"}]}}
UPDATE = {"operation": "UPDATE", "options": {}}
STATUS_OF_OTHERS = {**UPDATE, "subResource": "status", "userInfo": {"username": "tenant"}}
OUR_STATUS = {**UPDATE, "subResource": "status", "options": {"fieldManager": "kueue-admission"}}


def with_status(reserved: str = "False", **fields: Any) -> dict[str, Any]:
    """RESERVED with a status that has conditions."""
    return {**RESERVED, "status": {"conditions": [{"type": "QuotaReserved", "status": reserved}], **fields}}


@pytest.mark.parametrize(
    ("request_", "new", "old", "want"),
    [
        pytest.param(
            {**OUR_STATUS, "userInfo": {"username": MANAGER}},
            RESERVED,
            RESERVED,
            False,
            id="our own status is not asked about",
        ),
        pytest.param(
            {**OUR_STATUS, "userInfo": {"username": "tenant"}},
            with_status(reserved="True"),
            RESERVED,
            True,
            id="one that a tenant writes under our field manager's name is",
        ),
        pytest.param(
            {**UPDATE, "subResource": "status", "userInfo": {"username": "tenant"}},
            with_status(admission={"clusterQueue": "a"}),
            RESERVED,
            True,
            id="a status write of another user is",
        ),
        *(
            pytest.param(STATUS_OF_OTHERS, new, old, want, id=text)
            for new, old, want, text in (
                (with_status(), RESERVED, False, "a status with another condition is not"),
                (with_status(reserved="True"), with_status(), True, "a status that reserves quota is"),
                (
                    with_status(reserved="True"),
                    with_status(reserved="True"),
                    False,
                    "one that reserved it before is not",
                ),
                (with_status(), with_status(reserved="True"), False, "a status that releases quota is not"),
                (with_status(clusterName="w"), with_status(), True, "a cluster is"),
                (with_status(clusterName="w"), with_status(clusterName="w"), False, "the same cluster is not"),
                (with_status(), with_status(admission={}), True, "an admission that is removed is"),
                (with_status(admissionChecks=[{"name": "c"}]), with_status(admissionChecks=[]), True, "a check is"),
                (with_status(reclaimablePods=[{"name": "m"}]), with_status(), True, "reclaimable pods are"),
                (RESERVED, with_status(), False, "a status that is removed is not, without what has rules"),
                (RESERVED, with_status(reclaimablePods=[{"name": "m"}]), True, "a status that is removed is"),
            )
        ),
        pytest.param({"operation": "CREATE", "options": {}}, RESERVED, None, True, id="a workload that is made is"),
        pytest.param(
            {
                "operation": "CREATE",
                "options": {"fieldManager": "multikueue-job-workloads"},
                "userInfo": {"username": MANAGER},
            },
            RESERVED,
            None,
            False,
            id="the workload of a job, made by us, is not",
        ),
        pytest.param(
            {
                "operation": "CREATE",
                "options": {"fieldManager": "multikueue-job-workloads"},
                "userInfo": {"username": "tenant"},
            },
            RESERVED,
            None,
            True,
            id="one that a tenant makes under our field manager's name is",
        ),
        pytest.param(
            {**UPDATE, "options": {"fieldManager": "multikueue-job-workloads"}},
            {**RESERVED, "spec": {"active": False}},
            RESERVED,
            True,
            id="an update under that name is",
        ),
        pytest.param(
            UPDATE, {**RESERVED, "metadata": {"labels": {"a": "b"}}}, RESERVED, False, id="a finalizer is not"
        ),
        pytest.param(UPDATE, {**RESERVED, "spec": {"active": False}}, RESERVED, True, id="another spec is"),
        pytest.param(UPDATE, {"metadata": RESERVED["metadata"]}, RESERVED, True, id="a spec that is taken away is"),
        pytest.param(UPDATE, {**RESERVED, "metadata": {}}, RESERVED, True, id="labels that are taken away are"),
        pytest.param(
            UPDATE,
            {**RESERVED, "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}},
            RESERVED,
            True,
            id="an annotation is",
        ),
    ],
)
def test_what_is_asked_about_workloads(
    request_: dict[str, Any], new: dict[str, Any], old: dict[str, Any] | None, want: bool
) -> None:
    assert asked(entries(BY_URL, "validating")["vworkload.kb.io"], request_, new, old) is want


def statuses() -> Iterator[dict[str, Any]]:
    def assigned(flavor: str) -> dict[str, Any]:
        assignment = {"name": "main", "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": "1"}, "count": 1}
        return {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}

    def check(tolerations: list[dict[str, str]]) -> dict[str, Any]:
        updates = [{"name": "main", "tolerations": tolerations}]
        entry = {"name": "c", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        return {"admissionChecks": [{**entry, "podSetUpdates": updates}]}

    tolerated = [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]
    for admission, checks, reclaimable, cluster, reserved, finished in product(
        ({}, assigned("a"), assigned("b")),
        ({}, check([]), check(tolerated)),
        ({}, {"reclaimablePods": [{"name": "main", "count": 1}]}),
        ({}, {"clusterName": "w"}),
        ("True", "False"),
        ("True", "False"),
    ):
        conditions = [
            {
                "type": kind,
                "status": value,
                "reason": "R",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind, value in (("QuotaReserved", reserved), ("Finished", finished))
        ]
        yield {"conditions": conditions, **admission, **checks, **reclaimable, **cluster}


def test_no_status_that_a_rule_refuses_is_left_out() -> None:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    whole = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team"},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    hook = entries(BY_URL, "validating")["vworkload.kb.io"]
    valid = [status for status in statuses() if not refusals(WORKLOADS, {**whole, "status": status}, gate=default_gate)]
    left_out, refused = 0, 0
    for before, after in product(valid[::6], statuses()):
        old, new = ({**whole, "status": status} for status in (before, after))
        if asked(hook, STATUS_OF_OTHERS, new, old):
            refused += bool(refusals(WORKLOADS, new, old, gate=default_gate))
        else:
            left_out += 1
            assert refusals(WORKLOADS, new, old, gate=default_gate) == (), (before, after)
    assert left_out
    assert refused


CREATE = {"operation": "CREATE", "options": {}, "userInfo": {"username": "tenant"}}
AMOUNTS = (
    *("1", "250m", "1.5", "4Gi", "0", "-1", "-1m", "+1", "1e3", "1E", ".5", "", "1 ", "1\n", "9" * 13),
    *(2, -2, 1.5, None),
)


def pod_set(*, amounts: dict[str, Any] | None = None, template: dict[str, Any] | None = None, **more: Any) -> Any:
    """A podSet of one container that requests these amounts."""
    resources = {"resources": {"requests": amounts}} if amounts is not None else {}
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", **resources}]}
    return {"name": "main", "count": 1, "template": {"spec": spec, **(template or {})}, **more}


def new_workload(*pod_sets: Any, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """What a tenant creates."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team", **({"annotations": annotations} if annotations else {})},
        "spec": {"queueName": "lq", "podSets": list(pod_sets)},
    }


def test_an_ordinary_new_workload_is_not_asked_about() -> None:
    hook = entries(BY_URL, "validating")["vworkload.kb.io"]
    ordinary = pod_set(amounts={"cpu": "1", "memory": "4Gi", "example.com/gpu": 2})
    for each in (ordinary, pod_set()):
        assert not asked(hook, CREATE, new_workload(each, annotations={"team.example.com/a": "b"}))


def test_nothing_new_that_a_rule_refuses_is_left_out() -> None:
    hook = entries(BY_URL, "validating")["vworkload.kb.io"]
    of_limits = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "-1"}}}]}
    init = [{"name": "i", "image": "i", "resources": {"requests": {"pods": "1"}}}]
    pod_sets = [
        *(pod_set(amounts={"cpu": amount}) for amount in AMOUNTS),
        pod_set(amounts={"pods": "1"}),
        pod_set(template={"spec": of_limits}),
        pod_set(template={"spec": {**of_limits, "containers": [], "initContainers": init}}),
        pod_set(template={"spec": {"containers": [], "resources": {"requests": {"cpu": "-1"}}}}),
        pod_set(template={"metadata": {"labels": {"not a key": "b"}}}),
        pod_set(template={"metadata": {"annotations": {"not a key": "b"}}}),
        pod_set(minCount=1),
        pod_set(topologyRequest={"podSetSliceRequiredTopology": "rack"}),
        {"name": "main", "count": 1, "template": {}},
        {"name": "main", "count": 1},
    ]
    annotations = [
        None,
        {"kueue.x-k8s.io/priority-boost": "much"},
        {"kueue.x-k8s.io/elastic-job": "true"},
        {"kueue.x-k8s.io/workload-slice-replacement-for": "other/w"},
        {"kueue.x-k8s.io/admission-gated-by": "not a key"},
    ]
    left_out, refused = 0, 0
    for each, written in product(pod_sets, annotations):
        workload = new_workload(pod_set(amounts={"cpu": "1"}), each, annotations=written)
        if asked(hook, CREATE, workload):
            refused += bool(refusals(WORKLOADS, workload, gate=default_gate))
        else:
            left_out += 1
            assert refusals(WORKLOADS, workload, gate=default_gate) == (), workload
    assert left_out == sum((type(amount) is int and amount >= 0) or amount in AMOUNTS[:5] for amount in AMOUNTS)
    assert refused


ADOPTING = {"metadata": {"annotations": {"multikueue.io/adopts": "one m u 1", "multikueue.io/adopts-seal": "s"}}}
PLAIN = {"metadata": {"annotations": {"a": "b"}}}


@pytest.mark.parametrize(
    ("operation", "new", "old", "want"),
    [
        pytest.param("CREATE", {"metadata": {}}, None, False, id="a job without annotations is not"),
        pytest.param("CREATE", PLAIN, None, False, id="a job with others is not"),
        pytest.param("CREATE", ADOPTING, None, True, id="a job that is made with it is"),
        pytest.param("UPDATE", ADOPTING, {"metadata": {}}, True, id="a job that gets it is"),
        pytest.param("UPDATE", ADOPTING, PLAIN, True, id="a job that gets it beside others is"),
        pytest.param("UPDATE", ADOPTING, ADOPTING, False, id="a job that had it is not"),
        pytest.param("UPDATE", PLAIN, ADOPTING, False, id="a job that loses it is not"),
        pytest.param(
            "UPDATE",
            {"metadata": {"annotations": {**ADOPTING["metadata"]["annotations"], "multikueue.io/adopts-seal": "x"}}},
            ADOPTING,
            True,
            id="a job with another seal is",
        ),
    ],
)
def test_what_is_asked_about_adoptions(
    operation: str, new: dict[str, Any], old: dict[str, Any] | None, want: bool
) -> None:
    for kind in ("job", "workload"):
        hook = entries(BY_URL, "mutating")[f"madoption{kind}.kb.io"]
        assert asked(hook, {"operation": operation}, new, old) is want


def test_without_a_known_user_the_writes_of_the_manager_are_reviewed() -> None:
    (_, _), (_, validating) = configurations(KUEUE_HOOKS, BY_URL, excluded=())
    (hook,) = [entry for entry in validating["webhooks"] if entry["name"] == "vworkload.kb.io"]
    assert [condition["name"] for condition in hook["matchConditions"]] == [
        "spec-or-metadata-changed",
        "status-that-has-rules-changed",
        "new-with-something-that-has-rules",
    ]


WAITING: dict[str, Any] = {
    "metadata": {"labels": {"queue": "a"}},
    "spec": {"suspend": True, "parallelism": 2, "template": {}},
}


@pytest.mark.parametrize(
    ("new", "want"),
    [
        pytest.param({**WAITING, "spec": {**WAITING["spec"], "suspend": False}}, False, id="a job that starts is not"),
        pytest.param({**WAITING, "metadata": {"labels": {"queue": "b"}}}, True, id="another queue is"),
        pytest.param({**WAITING, "spec": {**WAITING["spec"], "parallelism": 3}}, True, id="more pods are"),
        pytest.param({**WAITING, "spec": {**WAITING["spec"], "completions": 3}}, True, id="completions are"),
        pytest.param({**WAITING, "spec": {**WAITING["spec"], "template": {"spec": {}}}}, True, id="other pods are"),
    ],
)
def test_what_is_asked_about_jobs(new: dict[str, Any], want: bool) -> None:
    hook = entries(BY_URL, "validating")["vjob.kb.io"]
    assert asked(hook, UPDATE, new, WAITING) is want
    assert asked(hook, {"operation": "CREATE"}, new)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(None, False, id="without a spec there is nothing to default"),
        pytest.param({"podSets": [{"name": "main"}]}, False, id="without minCount there is nothing to default"),
        pytest.param({"podSets": [{"name": "a"}, {"name": "b", "minCount": 1}]}, True, id="minCount may be taken away"),
    ],
)
def test_defaulting_is_asked_for_where_there_is_some(spec: dict[str, Any] | None, want: bool) -> None:
    new = {} if spec is None else {"spec": spec}
    assert asked(entries(BY_URL, "mutating")["mworkload.kb.io"], {"operation": "CREATE"}, new) is want


@pytest.mark.parametrize(
    ("target", "kept", "dropped"),
    [
        pytest.param(BY_URL, "url", "service", id="a URL drops the service"),
        pytest.param(BY_SERVICE, "service", "url", id="a service drops the URL"),
    ],
)
def test_conversion(target: WebhookClientConfig, kept: str, dropped: str) -> None:
    client = conversion_patch(target)["spec"]["conversion"]["webhook"]["clientConfig"]
    assert client[kept] is not None
    assert client[dropped] is None
