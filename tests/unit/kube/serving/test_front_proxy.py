# SPDX-License-Identifier: Apache-2.0
"""Which users an API server may name for the requests that it passes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from devcluster.pki import Authority
from multikueue.core.errors import BadInput
from multikueue.kube.serving.front_proxy import TrustedProxy
from multikueue.kube.serving.reviews import ReviewedUser

AUTHORITY = Authority.create("front-proxy-ca").certificate.decode()
CERTIFICATE = {"subject": ((("organizationName", "x"),), (("commonName", "front-proxy-client"),))}
STANDARD = {
    "requestheader-client-ca-file": AUTHORITY,
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
ALICE = ReviewedUser(name="alice", groups=("system:authenticated",))


def headers(*entries: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(entries or [("x-remote-user", "alice")]))


def named(certificate: dict[str, Any] | None, *entries: tuple[str, str], **data: str) -> ReviewedUser | None:
    changes = {f"requestheader-{key.replace('_', '-')}": value for key, value in data.items()}
    return TrustedProxy.of_config_map({**STANDARD, **changes}).user_of(headers(*entries), certificate)


def test_a_front_proxy_names_the_user_with_groups_uid_and_extra() -> None:
    found = named(
        CERTIFICATE,
        ("X-Remote-User", "alice"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Extra-Scopes%2fof", "one"),
        ("x-remote-extra-scopes%2Fof", "two"),
    )
    assert found == ReviewedUser(
        name="alice", uid="7", groups=("b", "a", "system:authenticated"), extra=(("scopes/of", ("one", "two")),)
    )


def test_an_anonymous_user_is_not_authenticated() -> None:
    found = named(CERTIFICATE, ("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated"))
    assert found == ReviewedUser(name="system:anonymous", groups=("system:unauthenticated",))


@pytest.mark.parametrize(
    ("certificate", "data"),
    [
        pytest.param(None, {}, id="without a certificate"),
        pytest.param({}, {}, id="with one that was not verified"),
        pytest.param({"subject": ((("commonName", "another"),),)}, {}, id="by another name"),
        pytest.param({"subject": ((("organizationName", "front-proxy-client"),),)}, {}, id="by an organization"),
        pytest.param(CERTIFICATE, {"client_ca_file": ""}, id="where the cluster has no front proxy"),
    ],
)
def test_headers_of_others_name_no_user(certificate: dict[str, Any] | None, data: dict[str, str]) -> None:
    assert named(certificate, **data) is None


def test_any_name_is_accepted_where_none_is_listed() -> None:
    assert named({"subject": ((("commonName", "x"),),)}, allowed_names="[]") == ALICE


def test_a_request_without_a_user_names_no_user() -> None:
    assert named(CERTIFICATE, ("X-Remote-Group", "system:masters")) is None
    assert named(CERTIFICATE, ("X-Remote-User", "")) is None


def test_headers_have_the_names_that_the_cluster_configures() -> None:
    assert named(CERTIFICATE, ("X-Who", "alice"), username_headers='["X-Other", "X-Who"]') == ALICE
    assert named(CERTIFICATE, ("X-Remote-User", "alice"), username_headers='["X-Who"]') is None


def test_an_empty_config_map_names_no_user() -> None:
    assert TrustedProxy.of_config_map({}) == TrustedProxy()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"requestheader-client-ca-file": "no PEM"}, "holds no usable certificates"),
        ({"requestheader-allowed-names": "front-proxy-client"}, "is not JSON"),
        ({"requestheader-allowed-names": json.dumps({"a": 1})}, "is not a list of strings"),
        ({"requestheader-group-headers": "[1]"}, "is not a list of strings"),
    ],
)
def test_a_config_map_that_cannot_be_read_is_named(data: dict[str, str], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        TrustedProxy.of_config_map(data)
