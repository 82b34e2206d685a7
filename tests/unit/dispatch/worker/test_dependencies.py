# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from multikueue.dispatch.worker.dependencies import (
    MAX_DEPENDENCIES,
    Dependency,
    dependencies,
    missing_message,
    sendable_objects,
)


def of_pod(**spec: Any) -> list[str]:
    """What a pod with these fields names, as text."""
    found = dependencies([{"name": "main", "count": 1, "template": {"spec": {"containers": [], **spec}}}])
    return [f"{each.kind}/{each.name}" for each in found]


def of_container(**fields: Any) -> list[str]:
    return of_pod(containers=[{"name": "c", **fields}])


def of_volume(**source: Any) -> list[str]:
    return of_pod(volumes=[{"name": "v", **source}])


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(of_volume(secret={"secretName": "a"}), ["Secret/a"], id="a secret volume"),
        pytest.param(of_volume(configMap={"name": "a"}), ["ConfigMap/a"], id="a config map volume"),
        pytest.param(
            of_volume(persistentVolumeClaim={"claimName": "a"}), ["PersistentVolumeClaim/a"], id="a volume claim"
        ),
        pytest.param(
            of_volume(projected={"sources": [{"secret": {"name": "a"}}, {"configMap": {"name": "b"}}]}),
            ["Secret/a", "ConfigMap/b"],
            id="the sources of a projected volume",
        ),
        pytest.param(
            of_pod(
                resourceClaims=[
                    {"name": "a", "resourceClaimTemplateName": "t"},
                    {"name": "b", "resourceClaimName": "c"},
                    {"name": "d", "resourceClaimTemplateName": "t"},
                ]
            ),
            ["ResourceClaimTemplate/t", "ResourceClaim/c"],
            id="claims of devices, each once",
        ),
        pytest.param(
            of_pod(resourceClaims=[{"name": "a"}, {"name": "b", "resourceClaimName": 3}, "c", None]),
            [],
            id="claims that name nothing",
        ),
        pytest.param(of_pod(resourceClaims={"name": "a", "resourceClaimName": "c"}), [], id="claims that are no list"),
        pytest.param(of_container(resources={"claims": [{"name": "a"}]}), [], id="a claim that only a container names"),
        pytest.param(of_volume(azureFile={"secretName": "a", "shareName": "s"}), ["Secret/a"], id="a file share"),
        pytest.param(of_volume(csi={"nodePublishSecretRef": {"name": "a"}}), ["Secret/a"], id="a volume of a driver"),
        pytest.param(of_volume(rbd={"secretRef": {"name": "a"}}), ["Secret/a"], id="a block device"),
        pytest.param(
            of_container(envFrom=[{"secretRef": {"name": "a"}}, {"configMapRef": {"name": "b"}}]),
            ["Secret/a", "ConfigMap/b"],
            id="a whole environment",
        ),
        pytest.param(
            of_container(
                env=[
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "k"}}},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "b", "key": "k"}}},
                    {"name": "C", "value": "c"},
                ]
            ),
            ["Secret/a", "ConfigMap/b"],
            id="single variables",
        ),
        pytest.param(
            of_pod(initContainers=[{"name": "c", "envFrom": [{"secretRef": {"name": "a"}}]}]),
            ["Secret/a"],
            id="an init container",
        ),
        pytest.param(of_pod(imagePullSecrets=[{"name": "a"}]), [], id="a pull secret, without which pods start"),
        pytest.param(of_pod(serviceAccountName="a"), ["ServiceAccount/a"], id="a service account"),
        pytest.param(of_pod(serviceAccount="a"), ["ServiceAccount/a"], id="a service account by the former field"),
    ],
)
def test_it_finds_what_is_named_in(found: list[str], expected: list[str]) -> None:
    assert found == expected


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(of_volume(secret={"secretName": "a", "optional": True}), id="optional volumes"),
        pytest.param(
            of_volume(projected={"sources": [{"configMap": {"name": "a", "optional": True}}]}),
            id="optional sources of a projected volume",
        ),
        pytest.param(
            of_container(envFrom=[{"configMapRef": {"name": "a", "optional": True}}]), id="optional environments"
        ),
        pytest.param(of_volume(ephemeral={"volumeClaimTemplate": {"spec": {}}}), id="generic ephemeral volumes"),
        pytest.param(of_volume(emptyDir={}), id="volumes of the node"),
        pytest.param(of_pod(serviceAccountName="default"), id="the default service account"),
        pytest.param(of_volume(configMap={"name": "kube-root-ca.crt"}), id="the certificates of the cluster"),
        pytest.param(of_volume(secret={"secretName": ""}), id="empty names"),
    ],
)
def test_nothing_is_needed_for(found: list[str]) -> None:
    assert found == []


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("text", id="text for a pod spec"),
        pytest.param({"volumes": "text", "containers": 7}, id="scalars for lists"),
        pytest.param({"volumes": [None, 3, {"secret": []}, {"projected": {"sources": {}}}]}, id="other types in lists"),
        pytest.param(
            {"containers": [{"env": [{"valueFrom": "x"}], "envFrom": [["a"]]}]}, id="other types in a container"
        ),
        pytest.param({"serviceAccountName": {"a": 1}, "imagePullSecrets": {"name": "a"}}, id="objects for names"),
    ],
)
def test_a_malformed_template_names_nothing(spec: object) -> None:
    assert dependencies([{"template": {"spec": spec}}, {"template": spec}, {}]) == ()


def test_an_object_that_is_named_twice_is_one_and_required_once_is_required() -> None:
    volumes = [
        {"name": "a", "secret": {"secretName": "s", "optional": True}},
        {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "secret": {"secretName": "s"}},
    ]
    assert of_pod(volumes=volumes) == ["Secret/s"]


def pod_set(**spec: Any) -> dict[str, Any]:
    return {"name": "main", "count": 1, "template": {"spec": spec}}


def of_sent(*pod_sets: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What can be sent with a job of these pod sets: what is needed, and what is optional."""
    found = sendable_objects(pod_sets)
    needed, optional = ([f"{each.kind}/{each.name}" for each in part] for part in (found.needed, found.optional))
    return needed, optional


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"volumes": [{"secret": {"secretName": "a", "optional": True}}]}, "Secret/a", id="a secret volume"
        ),
        pytest.param({"volumes": [{"configMap": {"name": "a", "optional": True}}]}, "ConfigMap/a", id="a map volume"),
        pytest.param(
            {"volumes": [{"projected": {"sources": [{"secret": {"name": "a", "optional": True}}]}}]},
            "Secret/a",
            id="a projected volume",
        ),
        pytest.param(
            {"containers": [{"envFrom": [{"configMapRef": {"name": "a", "optional": True}}]}]},
            "ConfigMap/a",
            id="an environment",
        ),
        pytest.param(
            {
                "initContainers": [
                    {"env": [{"valueFrom": {"secretKeyRef": {"name": "a", "key": "k", "optional": True}}}]}
                ]
            },
            "Secret/a",
            id="a variable",
        ),
    ],
)
def test_an_optional_reference_is_sent_and_not_needed(spec: dict[str, Any], expected: str) -> None:
    assert of_sent(pod_set(**spec)) == ([], [expected])
    assert dependencies([pod_set(**spec)]) == ()


def test_what_is_required_anywhere_is_needed_and_what_cannot_be_sent_is_left_out() -> None:
    optional = pod_set(volumes=[{"secret": {"secretName": name, "optional": True}} for name in ("s", "p", "o", "A_b")])
    needed = pod_set(
        volumes=[{"secret": {"secretName": "s"}}, {"configMap": {"name": "kube-root-ca.crt", "optional": True}}],
        imagePullSecrets=[{"name": "p"}],
        serviceAccountName="a",
    )
    assert of_sent(optional, needed) == (["Secret/s", "Secret/p"], ["Secret/o"])


def test_what_is_optional_never_takes_the_place_of_what_is_needed() -> None:
    optional = [{"secret": {"secretName": f"o{number}", "optional": True}} for number in range(1000)]
    required = [{"secret": {"secretName": f"s{number}"}} for number in range(MAX_DEPENDENCIES - 1)]
    needed, left = of_sent(pod_set(volumes=[*optional, *required]))
    assert (len(needed), left) == (MAX_DEPENDENCIES - 1, ["Secret/o0"])


@pytest.mark.parametrize("value", ["true", 1, {"a": True}, None])
def test_only_true_makes_a_reference_optional(value: object) -> None:
    assert of_sent(pod_set(volumes=[{"secret": {"secretName": "a", "optional": value}}])) == (["Secret/a"], [])


def test_no_more_than_the_limit_are_looked_for() -> None:
    volumes = [{"name": f"v{number}", "secret": {"secretName": f"s{number}"}} for number in range(1000)]
    assert len(of_pod(volumes=volumes)) == MAX_DEPENDENCIES


@pytest.mark.parametrize("name", ["../../kube-system/secrets/x", "a/b", "A_b", "x" * 254, "a\nb", " ", "a?b=c"])
def test_a_name_that_no_object_has_is_never_possible(name: str) -> None:
    assert not Dependency("Secret", name).is_possible


def test_the_message_names_a_few_and_counts_the_others() -> None:
    missing = [Dependency("Secret", f"s-{number}") for number in range(7)]
    assert missing_message("team", missing[:1]) == 'not found in namespace "team": Secret "s-0"'
    assert missing_message("team", missing).endswith('Secret "s-4" and 2 more')
    assert missing_message("team", ()) == ""


def test_a_name_of_control_characters_is_shown_escaped_and_cut() -> None:
    text = missing_message("team", [Dependency("Secret", "\x1b[2J" + "x" * 5000)])
    assert "\x1b" not in text
    assert len(text) < 200
