# SPDX-License-Identifier: Apache-2.0
"""What the API server is told about the webhooks."""

from __future__ import annotations

from typing import Any

import pytest

from manager.webhooks.configurations import JOB_HOOKS, KUEUE_HOOKS, Reach, configurations, conversion_patch

BY_URL = Reach(ca_bundle="Q0E=", url="https://127.0.0.1:9443/")
BY_SERVICE = Reach(ca_bundle="Q0E=", service="hook", namespace="kueue-system")


def entries(reach: Reach, name: str) -> dict[str, dict[str, Any]]:
    for _, body in configurations((*KUEUE_HOOKS, *JOB_HOOKS), reach, excluded=("kube-system", "kueue-system")):
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


def test_our_own_status_applies_are_not_asked_about() -> None:
    (condition,) = entries(BY_URL, "validating")["vworkload.kb.io"]["matchConditions"]
    assert "kueue-admission" in condition["expression"]


@pytest.mark.parametrize(
    ("reach", "kept", "dropped"),
    [
        pytest.param(BY_URL, "url", "service", id="a URL drops the service"),
        pytest.param(BY_SERVICE, "service", "url", id="a service drops the URL"),
    ],
)
def test_conversion(reach: Reach, kept: str, dropped: str) -> None:
    client = conversion_patch(reach)["spec"]["conversion"]["webhook"]["clientConfig"]
    assert client[kept] is not None
    assert client[dropped] is None
