# SPDX-License-Identifier: Apache-2.0
"""A ClusterProfile and the Configuration make a kubeconfig, or a reason why not."""

from __future__ import annotations

from typing import Any

import pytest

from manager.dispatch.transport.cluster_profiles import JudgedKubeconfig, access_of
from multikueue.api.configuration import AccessProvider, ClusterProfile, ExecConfig
from multikueue.dispatch.protocol.kubeconfigs import KubeconfigProblem
from multikueue.kube.rest import credentials
from multikueue.kube.rest.tokens import ExecToken

Object = dict[str, Any]
PLUGIN = ExecConfig(api_version="client.authentication.k8s.io/v1", command="gke-plugin", provide_cluster_info=True)
SETTINGS = ClusterProfile(access_providers=(AccessProvider(name="gke", exec_config=PLUGIN),))


def profile(*providers: Object, field: str = "accessProviders") -> Object:
    return {"metadata": {"name": "p"}, "status": {field: list(providers)}}


def offered(name: str = "gke", **cluster: Any) -> Object:
    return {"name": name, "cluster": {"server": "https://10.0.0.1:6443", **cluster}}


def test_the_first_provider_that_both_know_is_used() -> None:
    found = access_of(profile(offered("other"), offered()), SETTINGS)
    assert isinstance(found, JudgedKubeconfig)
    config = credentials.from_dict(found.kubeconfig)
    assert config.server == "https://10.0.0.1:6443"
    assert isinstance(config.tokens, ExecToken)
    user = found.kubeconfig["users"][0]["user"]
    assert user["exec"]["command"] == "gke-plugin"
    assert user["exec"]["provideClusterInfo"] is True


@pytest.mark.parametrize("field", ["accessProviders", "credentialProviders"])
def test_both_names_of_the_field_are_read(field: str) -> None:
    assert isinstance(access_of(profile(offered(), field=field), SETTINGS), JudgedKubeconfig)


def test_the_older_name_of_the_setting_is_read() -> None:
    older = ClusterProfile(credentials_providers=SETTINGS.access_providers)
    assert isinstance(access_of(profile(offered()), older), JudgedKubeconfig)


def test_another_server_is_another_access() -> None:
    one, other = access_of(profile(offered()), SETTINGS), access_of(profile(offered(server="https://b")), SETTINGS)
    assert isinstance(one, JudgedKubeconfig)
    assert isinstance(other, JudgedKubeconfig)
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("found", "settings", "reason", "part"),
    [
        (profile(offered()), None, "BadClusterProfile", "no access providers are configured"),
        (profile(offered()), ClusterProfile(), "BadClusterProfile", "no access providers are configured"),
        (profile(offered("other")), SETTINGS, "BadClusterProfile", "it offers: other"),
        (profile(), SETTINGS, "BadClusterProfile", "it offers: none"),
        (profile(offered(server="")), SETTINGS, "BadRestConfig", "server is empty"),
        (
            profile(offered("gke", **{"insecure-skip-tls-verify": True})),
            SETTINGS,
            "BadRestConfig",
            "insecure-skip-tls-verify is not allowed",
        ),
        (
            profile(offered()),
            ClusterProfile(access_providers=(AccessProvider(name="gke"),)),
            "BadClusterProfile",
            "has no execConfig.command",
        ),
    ],
    ids=["nothing configured", "empty", "none known", "none offered", "no server", "insecure", "no program"],
)
def test_is_refused(found: Object, settings: ClusterProfile | None, reason: str, part: str) -> None:
    problem = access_of(found, settings)
    assert isinstance(problem, KubeconfigProblem)
    assert problem.reason == reason
    assert part in problem.detail
