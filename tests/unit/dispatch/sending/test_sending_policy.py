# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from multikueue.api.constants import SEND_OBJECTS_ANNOTATION
from multikueue.dispatch.sending.sending_policy import not_sendable, sending_rules


def test_nothing_is_sent_by_default() -> None:
    rules = sending_rules({})
    assert (rules.kinds, rules.problem, rules.enabled) == (frozenset(), "", False)


def test_the_listed_kinds_are_sent() -> None:
    assert sending_rules({SEND_OBJECTS_ANNOTATION: "Secret, ConfigMap"}).kinds == {"Secret", "ConfigMap"}
    assert sending_rules({SEND_OBJECTS_ANNOTATION: "ConfigMap"}).kinds == {"ConfigMap"}


@pytest.mark.parametrize("text", ["", ",", "true", "Secrets", "Secret,Pod", "ServiceAccount", "Secret," * 1000])
def test_an_invalid_annotation_allows_nothing_and_is_a_reason(text: str) -> None:
    rules = sending_rules({SEND_OBJECTS_ANNOTATION: text})
    assert rules.kinds == frozenset()
    assert rules.enabled
    assert rules.problem.startswith(f"annotation {SEND_OBJECTS_ANNOTATION}: expected one or both of ConfigMap and ")
    assert len(rules.problem) < 500


@pytest.mark.parametrize("secret_type", ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"])
def test_credentials_of_a_cluster_are_never_sent(secret_type: str) -> None:
    assert not_sendable({"kind": "Secret", "type": secret_type}) == f"a Secret of type {secret_type} is never sent"


def test_other_types_are_sent_unless_they_are_being_deleted() -> None:
    assert not_sendable({"kind": "Secret", "type": "kubernetes.io/tls", "metadata": {}}) == ""
    assert not_sendable({"kind": "ConfigMap"}) == ""
    leaving = {"kind": "ConfigMap", "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert not_sendable(leaving) == "it is being deleted"
    assert not_sendable({"kind": "ServiceAccount"})
