# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.constants import SENT_FROM_ANNOTATION, SENT_TYPE_ANNOTATION
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.sending.sent_objects import (
    SentReference,
    contents_of,
    mailbox_body,
    mailbox_name,
    received,
    references_of,
    references_wire,
)
from multikueue.dispatch.worker.dependencies import Dependency

SECRET = Dependency("Secret", "db")
SOURCE = Key("team", "db")
OBJECT: dict[str, Any] = {
    "kind": "Secret",
    "type": "kubernetes.io/basic-auth",
    "metadata": {
        "name": "db",
        "labels": {"a": "b"},
        "annotations": {"kubernetes.io/service-account.name": "admin"},
        "ownerReferences": [{"kind": "X"}],
        "finalizers": ["x/y"],
    },
    "data": {"password": "c2VjcmV0"},
    "immutable": True,
}


def marked(source: str) -> dict[str, Any]:
    """The metadata of an object in a mailbox."""
    return {"annotations": {SENT_FROM_ANNOTATION: source}}


def in_mailbox(**changes: Any) -> dict[str, Any]:
    body = mailbox_body(
        contents_of({**OBJECT, **changes}),
        source=SOURCE,
        needed=SECRET,
        cluster="east",
        version="v",
        namespace="mk-east",
    )
    assert body["type"] == "multikueue.io/sent", "no controller of the hub acts on it"
    return body


def test_contents_arrive_as_they_are_and_nothing_else_of_the_object_does() -> None:
    contents, version = received(in_mailbox(), source=SOURCE, needed=SECRET)
    assert version == "v"
    assert contents.body({"name": "db"}) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "db"},
        "type": "kubernetes.io/basic-auth",
        "data": {"password": "c2VjcmV0"},
    }
    assert "labels" not in str(contents)


def test_binary_data_of_a_config_map_arrives() -> None:
    obj = {"kind": "ConfigMap", "data": {"a": "b"}, "binaryData": {"c": "ZA=="}}
    assert contents_of(obj).body({})["binaryData"] == {"c": "ZA=="}
    assert "type" not in contents_of(obj).body({})


def test_the_version_changes_with_the_contents_only_and_needs_the_key() -> None:
    version = contents_of(OBJECT).version(b"key")
    assert contents_of({**OBJECT, "metadata": {"name": "db"}}).version(b"key") == version
    assert contents_of({**OBJECT, "data": {"password": "b3RoZXI="}}).version(b"key") != version
    assert contents_of({**OBJECT, "type": "Opaque"}).version(b"key") != version
    assert contents_of(OBJECT).version(b"another") != version, "it gives nothing away about the contents"


def test_names_in_a_mailbox_differ_by_namespace_kind_and_name() -> None:
    names = {
        mailbox_name(namespace, Dependency(kind, name))
        for namespace in ("a", "b")
        for kind in ("Secret", "ConfigMap")
        for name in ("x", "y")
    }
    assert len(names) == 8


@pytest.mark.parametrize("secret_type", ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"])
def test_credentials_of_a_cluster_are_not_accepted_whoever_stored_them(secret_type: str) -> None:
    body = in_mailbox()
    body["metadata"]["annotations"][SENT_TYPE_ANNOTATION] = secret_type
    with pytest.raises(BadInput, match="never sent"):
        received(body, source=SOURCE, needed=SECRET)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"kind": "Secret", "metadata": "x"}, id="no metadata"),
        pytest.param(
            {**OBJECT, "metadata": {"annotations": {SENT_FROM_ANNOTATION: "other/db"}}}, id="another namespace"
        ),
        pytest.param({**OBJECT, "metadata": {"annotations": {SENT_FROM_ANNOTATION: "team/x"}}}, id="another name"),
        pytest.param({"kind": "ConfigMap", "metadata": marked("team/db")}, id="another kind"),
        pytest.param(in_mailbox(data={"a": "x" * 2_000_000}), id="a huge one"),
        pytest.param({**in_mailbox(), "data": {"a": 1}}, id="no texts"),
        pytest.param({**in_mailbox(), "data": ["a"]}, id="a list"),
    ],
)
def test_what_is_not_the_object_is_not_accepted(body: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        received(body, source=SOURCE, needed=SECRET)


def test_an_assignment_lists_references_and_what_cannot_be_one_is_left_out() -> None:
    listed = (
        SentReference(SECRET, version="v"),
        SentReference(Dependency("ConfigMap", "c"), problem="there is none"),
    )
    assert references_of({"sentObjects": references_wire(listed)}) == listed
    foreign = [
        {"kind": "Pod", "name": "x", "version": "v"},
        {"kind": "Secret", "name": "../../kube-system/secrets/x", "version": "v"},
        {"kind": "Secret", "name": "", "version": "v"},
        {"kind": "Secret", "name": "x", "version": "v" * 65},
        {},
    ]
    assert references_of({"sentObjects": foreign}) == ()
    (long,) = references_of({"sentObjects": [{"kind": "Secret", "name": "x", "problem": "a\n" * 5000}]})
    assert len(long.problem) <= 300
    assert "\n" not in long.problem
