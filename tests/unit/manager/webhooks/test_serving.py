# SPDX-License-Identifier: Apache-2.0
"""Where webhooks are served, and which names their certificate has."""

from __future__ import annotations

from typing import Any

import pytest

from manager.options import ManagerOptions
from manager.webhooks.serving import WebhookAddress
from multikueue.api.configuration import Configuration
from multikueue.core.errors import BadInput

SERVICE_HOSTS = ["kueue-webhook-service.kueue-system.svc", "kueue-webhook-service.kueue-system.svc.cluster.local"]


def address(**options: Any) -> WebhookAddress:
    return WebhookAddress.of(ManagerOptions(**options), Configuration(), namespace="kueue-system")


def test_without_options_the_api_server_calls_the_service_of_the_configuration() -> None:
    found = address()
    assert (found.bind, found.hosts) == (":9443", SERVICE_HOSTS)
    config = found.client_config("Y2E=")
    assert (config.url, config.service, config.namespace, config.ca_bundle) == (
        "",
        "kueue-webhook-service",
        "kueue-system",
        "Y2E=",
    )


@pytest.mark.parametrize(
    ("url", "bind", "host"),
    [
        ("https://127.0.0.1:9444", "127.0.0.1:9444", "127.0.0.1"),
        ("https://hub.example", "hub.example:443", "hub.example"),
        ("https://[::1]:9444/base", "[::1]:9444", "::1"),
    ],
)
def test_a_url_says_where_to_listen_and_what_the_certificate_is_for(url: str, bind: str, host: str) -> None:
    found = address(webhook_url=url)
    assert (found.bind, found.hosts, found.client_config("").url) == (bind, [*SERVICE_HOSTS, host], url)


def test_a_replica_behind_a_stable_url_listens_on_the_configured_port() -> None:
    found = address(webhook_url="https://hub.example", webhook_bind="127.0.0.1:0")
    assert (found.bind, found.hosts[-1]) == ("127.0.0.1:0", "hub.example")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9443", "127.0.0.1:9443", "https://", "https://[::1", "https://hub:99999", "https://hub:x"]
)
def test_what_is_no_https_url_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(BadInput, match=r"--webhook-url: .* is not a URL such as https://127\.0\.0\.1:9443"):
        address(webhook_url=url)
