# SPDX-License-Identifier: Apache-2.0
"""Where the visibility API is served, and how the API server finds it."""

from __future__ import annotations

import pytest

from manager.options import ManagerOptions
from manager.visibility.install import ServiceTarget
from manager.visibility.serving import VisibilityAddress
from multikueue.api.configuration import Configuration
from multikueue.core.errors import BadInput

OFF = Configuration(feature_gates={"VisibilityOnDemand": False})


def address(configuration: Configuration | None = None, **options: str | bool) -> VisibilityAddress | None:
    return VisibilityAddress.of(
        ManagerOptions(**options),  # type: ignore[arg-type]
        configuration or Configuration(),
        namespace="kueue-system",
    )


@pytest.mark.parametrize(
    ("options", "bind", "host", "port"),
    [
        pytest.param({}, "0.0.0.0:8082", "", 0, id="as in Kueue"),
        pytest.param({"visibility_bind": "127.0.0.1:0"}, "127.0.0.1:0", "", 0, id="at another address"),
        pytest.param({"webhook_url": "https://hub.example:9443"}, "0.0.0.0:8082", "hub.example", 0, id="from outside"),
        pytest.param(
            {"webhook_url": "https://a:1", "visibility_url": "https://b:2", "visibility_bind": "127.0.0.1:3"},
            "127.0.0.1:3",
            "b",
            2,
            id="behind a stable address",
        ),
    ],
)
def test_it_is_served_where_options_and_configuration_say(
    options: dict[str, str], bind: str, host: str, port: int
) -> None:
    assert address(None, **options) == VisibilityAddress(bind, "kueue-system", host=host, port=port)


@pytest.mark.parametrize(
    ("configuration", "options"),
    [
        pytest.param(None, {"visibility_bind": "0"}, id="by the option"),
        pytest.param(OFF, {}, id="by the feature gate"),
        pytest.param(None, {"webhooks": False}, id="without webhooks, whose certificate it has"),
    ],
)
def test_it_can_be_turned_off(configuration: Configuration | None, options: dict[str, str | bool]) -> None:
    assert address(configuration, **options) is None


def test_without_webhooks_it_cannot_be_asked_for() -> None:
    with pytest.raises(BadInput, match="--visibility-bind needs the webhooks"):
        address(webhooks=False, visibility_bind=":8082")


@pytest.mark.parametrize("url", ["http://a:1", "https://a", "a:1", "https://[::1", "https://a:99999"])
def test_what_is_no_https_url_with_a_port_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match=r"--visibility-url: .* is not a URL such as https://127\.0\.0\.1:8082"):
        address(visibility_url=url)


def test_the_certificate_is_for_the_service() -> None:
    found = address()
    assert found is not None
    assert found.hosts == ["kueue-visibility-server.kueue-system.svc"]


def test_both_versions_are_registered_with_the_authority_of_the_certificate() -> None:
    target = ServiceTarget(namespace="kueue-system")
    newer, older = (target.api_service(version, ca_bundle="Y2E=", current=None) for version in ("v1beta2", "v1beta1"))
    assert newer["metadata"]["name"] == "v1beta2.visibility.kueue.x-k8s.io"
    assert newer["spec"]["service"] == {"name": "kueue-visibility-server", "namespace": "kueue-system", "port": 443}
    assert newer["spec"]["versionPriority"] > older["spec"]["versionPriority"]
    assert newer["spec"]["caBundle"] == "Y2E="
    assert "insecureSkipTLSVerify" not in newer["spec"]


def test_a_registration_without_verification_gets_it() -> None:
    current = {"spec": {"insecureSkipTLSVerify": True}}
    found = ServiceTarget(namespace="n").api_service("v1beta1", ca_bundle="Y2E=", current=current)
    assert found["spec"]["insecureSkipTLSVerify"] is False


def test_a_manager_outside_the_cluster_is_the_external_name_of_the_service() -> None:
    target = ServiceTarget(namespace="n", host="127.0.0.1", port=4711)
    assert target.service()["spec"] == {"type": "ExternalName", "externalName": "127.0.0.1"}
    assert target.api_service("v1beta1", ca_bundle="", current=None)["spec"]["service"]["port"] == 4711
