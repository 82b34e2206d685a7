# SPDX-License-Identifier: Apache-2.0
"""Bodies of Go clients: names in JSON, zeros, and what is damaged."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.apiserver.codec import protobuf
from devcluster.apiserver.errors import StatusError
from tests.support.protobuf import encode

Document = dict[str, Any]


def lease(**spec: Any) -> Document:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": spec}


def job(**spec: Any) -> Document:
    template = {"metadata": {"labels": {"a": ""}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {**spec, "template": template}}


def decoded(value: Document) -> Document:
    found: Document = protobuf.decode(encode(value))
    return found


def test_zero_is_kept_in_fields_that_are_pointers() -> None:
    found = decoded(job(parallelism=0, suspend=False, backoffLimit=0))
    assert (found["spec"]["parallelism"], found["spec"]["suspend"], found["spec"]["backoffLimit"]) == (0, False, 0)


def test_a_zero_that_every_client_writes_means_absent() -> None:
    container = decoded(job())["spec"]["template"]["spec"]["containers"][0]
    assert container == {"name": "c", "image": "i"}


def test_an_empty_text_is_kept_where_it_differs_from_none() -> None:
    assert decoded(lease(holderIdentity=""))["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:02.000000Z", "1969-12-31T23:59:59.500000Z", "2026-01-02T03:04:05.000006Z"]
)
def test_a_time_may_be_before_the_epoch(moment: str) -> None:
    assert decoded(lease(renewTime=moment))["spec"]["renewTime"] == moment


def test_the_value_of_a_label_may_be_empty() -> None:
    assert decoded(job())["spec"]["template"]["metadata"]["labels"] == {"a": ""}


def test_a_schema_has_the_names_of_json() -> None:
    part = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "nullable": True}
    schema = {"type": "object", "properties": {"p": part}, "x-kubernetes-map-type": "atomic"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    definition: Document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "d"},
        "spec": {"group": "g", "scope": "Cluster", "names": {"plural": "p", "kind": "K"}, "versions": versions},
    }
    shown = decoded(definition)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert shown == schema


def test_numbers_of_a_schema_may_have_a_fraction() -> None:
    schema = {"type": "number", "maximum": 10.5, "minimum": -2}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    definition: Document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "d"},
        "spec": {"group": "g", "scope": "Cluster", "names": {"plural": "p", "kind": "K"}, "versions": versions},
    }
    assert decoded(definition)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == schema


def test_webhooks_of_a_configuration_are_read() -> None:
    hook = {"name": "a.example.com", "clientConfig": {"url": "https://h"}, "rules": [{"operations": ["CREATE"]}]}
    value: Document = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "w"},
        "webhooks": [hook],
    }
    assert [found["name"] for found in decoded(value)["webhooks"]] == ["a.example.com"]
    assert decoded(value)["webhooks"][0]["rules"] == [{"operations": ["CREATE"]}]


@pytest.mark.parametrize("length", [0, 3, 4, 20, -1])
def test_a_damaged_body_is_refused(length: int) -> None:
    with pytest.raises(StatusError) as refused:
        protobuf.decode(encode(job())[:length])
    assert refused.value.code == 400


def test_a_kind_that_is_not_known_is_refused() -> None:
    type_meta = protobuf.field(1, b"v1") + protobuf.field(2, b"Nothing")
    with pytest.raises(StatusError, match='no kind "Nothing" is registered'):
        protobuf.decode(protobuf.MAGIC + protobuf.field(1, type_meta))
