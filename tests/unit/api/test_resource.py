# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from multikueue.api import resource
from multikueue.api.resource import CLUSTER_QUEUES, NODES, PODS, WORKLOADS, Resource
from multikueue.core.errors import BadInput


@pytest.mark.parametrize(
    ("got", "want"),
    [
        pytest.param(PODS.path("ns", "p"), "/api/v1/namespaces/ns/pods/p", id="a core object in a namespace"),
        pytest.param(PODS.path(), "/api/v1/pods", id="a namespaced collection over all namespaces"),
        pytest.param(NODES.path(name="n"), "/api/v1/nodes/n", id="a cluster-scoped object"),
        pytest.param(
            NODES.path("ignored", "n", "status"), "/api/v1/nodes/n/status", id="a cluster-scoped kind has no namespace"
        ),
        pytest.param(
            WORKLOADS.path("ns", "w", "status"),
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/w/status",
            id="a subresource",
        ),
        pytest.param(
            CLUSTER_QUEUES.at("v1beta1").path(), "/apis/kueue.x-k8s.io/v1beta1/clusterqueues", id="another version"
        ),
        pytest.param(
            resource.CLUSTER_ROLES.path(name="system:mk:agents"),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:mk:agents",
            id="a colon stays as it is",
        ),
        pytest.param(PODS.path("ns", "a/b?c"), "/api/v1/namespaces/ns/pods/a%2Fb%3Fc", id="a name stays one segment"),
    ],
)
def test_the_path_of_an_object_is_the_api_servers(got: str, want: str) -> None:
    assert got == want


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_address_something_else_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="cannot be the name"):
        PODS.path("ns", name)


def test_a_namespaced_object_needs_a_namespace() -> None:
    with pytest.raises(BadInput, match="Pod p: a namespace is needed"):
        PODS.path(name="p")


def test_a_subresource_needs_an_object() -> None:
    with pytest.raises(BadInput, match="subresource status"):
        PODS.path("ns", subresource="status")


def test_every_resource_is_named_once() -> None:
    everything = [value for value in vars(resource).values() if isinstance(value, Resource)]
    assert len({(r.group, r.plural) for r in everything}) == len(everything)
    assert all(r.plural == r.plural.lower() and r.singular == r.kind.lower() for r in everything)
