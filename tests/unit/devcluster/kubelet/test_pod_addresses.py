# SPDX-License-Identifier: Apache-2.0
"""Which pod has which address."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_address
from typing import Any

import pytest

from devcluster.kubelet.pod_addresses import POD_RANGE, AddressesExhausted, PodAddresses

SMALL = IPv4Network("10.244.0.0/29")  # six addresses


def pod(uid: str, *, shows: object = None) -> dict[str, Any]:
    status = {} if shows is None else {"podIP": shows}
    return {"metadata": {"name": uid, "namespace": "n", "uid": uid}, "status": status}


def test_each_pod_has_an_address_of_its_own_and_keeps_it() -> None:
    addresses = PodAddresses()
    given = [addresses.address_of(pod(f"pod-{number}")) for number in range(300)]
    assert len(set(given)) == 300
    assert all(ip_address(each) in POD_RANGE for each in given)
    assert addresses.address_of(pod("pod-0")) == given[0]


def test_an_address_is_reused_only_after_its_pod_is_deleted() -> None:
    addresses = PodAddresses(SMALL)
    given = [addresses.address_of(pod(f"pod-{number}")) for number in range(6)]
    with pytest.raises(AddressesExhausted, match=r"all 6 addresses of 10\.244\.0\.0/29"):
        addresses.address_of(pod("one too many"))
    addresses.release("pod-4")
    assert addresses.address_of(pod("next")) == given[4]


def test_an_address_that_was_given_back_is_not_the_next_to_be_given() -> None:
    addresses = PodAddresses(SMALL)
    first = addresses.address_of(pod("a"))
    addresses.release("a")
    assert addresses.address_of(pod("b")) != first


def test_addresses_that_pods_already_show_are_kept() -> None:
    addresses = PodAddresses(SMALL)
    addresses.learn(pod("old", shows="10.244.0.1"))
    assert addresses.address_of(pod("new")) == "10.244.0.2"
    assert addresses.address_of(pod("old", shows="10.244.0.1")) == "10.244.0.1"


def test_of_two_pods_that_show_one_address_the_second_gets_another() -> None:
    addresses = PodAddresses(SMALL)
    addresses.learn(pod("a", shows="10.244.0.3"))
    assert addresses.address_of(pod("b", shows="10.244.0.3")) != "10.244.0.3"
    addresses.release("b")
    assert addresses.address_of(pod("a", shows="10.244.0.3")) == "10.244.0.3"


@pytest.mark.parametrize("shows", ["127.0.0.1", "fe80::1", "no address", 7])
def test_what_a_status_shows_that_is_not_of_the_range_is_not_believed(shows: object) -> None:
    assert ip_address(PodAddresses().address_of(pod("a", shows=shows))) in POD_RANGE


def test_releasing_a_pod_without_an_address_changes_nothing() -> None:
    addresses = PodAddresses(SMALL)
    held = addresses.address_of(pod("a"))
    addresses.release("b")
    assert addresses.address_of(pod("a")) == held
    assert addresses.address_of(pod("b")) != held
