# SPDX-License-Identifier: Apache-2.0
"""The webhook configurations and the conversion stanza."""

from __future__ import annotations

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
OUR_STATUS = {**UPDATE, "subResource": "status", "options": {"fieldManager": "kueue-admission"}}


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
            RESERVED,
            RESERVED,
            True,
            id="one that a tenant writes under our field manager's name is",
        ),
        pytest.param(
            {**UPDATE, "subResource": "status", "userInfo": {"username": "tenant"}},
            RESERVED,
            RESERVED,
            True,
            id="a status write of another user is",
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
    assert [condition["name"] for condition in hook["matchConditions"]] == ["spec-or-metadata-changed"]


WAITING = {"metadata": {"labels": {"queue": "a"}}, "spec": {"suspend": True, "parallelism": 2, "template": {}}}


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
