# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib

import pytest

from multikueue.api import names
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
from multikueue.core.keys import Key


def test_the_name_of_an_assignment_follows_from_the_workload() -> None:
    digest = hashlib.sha256(b"ns/job-a").hexdigest()[:8]
    assert assignment_name(Key("ns", "job-a")) == f"job-a-{digest}"


def test_equal_names_in_two_namespaces_have_two_assignments() -> None:
    assert assignment_name(Key("a", "w")) != assignment_name(Key("b", "w"))


@pytest.mark.parametrize("name", ["w" * 253, f"{'w' * 199}.{'x' * 50}", f"{'w' * 198}--{'x' * 50}"])
def test_the_name_of_an_assignment_is_always_legal(name: str) -> None:
    made = assignment_name(Key("ns", name))
    assert not list(names.dns_subdomain(made))


def test_a_mailbox_is_named_after_its_cluster() -> None:
    assert mailbox_namespace("west") == "mk-west"


@pytest.mark.parametrize("cluster", ["west.example.com", "w" * 61, f"{'w' * 50}.{'x' * 200}", f"{'w' * 50}-.x"])
def test_the_mailbox_of_any_cluster_is_a_legal_namespace_of_its_own(cluster: str) -> None:
    made = mailbox_namespace(cluster)
    assert made.startswith("mk-w")
    assert len(made) <= 63
    assert not list(names.dns_label(made))
    assert made != mailbox_namespace(cluster.replace(".", "-") if "." in cluster else cluster[:-1])


def test_the_longest_plain_name_is_taken_as_it_is() -> None:
    assert mailbox_namespace("w" * 60) == "mk-" + "w" * 60
