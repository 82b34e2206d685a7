# SPDX-License-Identifier: Apache-2.0
"""The IPv4 addresses of the pods of one cluster's virtual nodes.

A pod keeps its address until it is deleted from the API. Addresses in existing pod statuses are reserved before new
ones are assigned, so that no two pods have the same one, also after a restart of the process. The addresses are not
routable on the machine: only virtual pods and the API server's proxy can use them.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, ip_address
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.errors import MultikueueError

POD_RANGE: Final = IPv4Network("10.244.0.0/14")


class AddressesExhausted(MultikueueError):
    """All addresses of the range are in use."""


class PodAddresses:
    """The assigned addresses by pod uid."""

    def __init__(self, network: IPv4Network = POD_RANGE) -> None:
        self._network = network
        self._first = int(network.network_address) + 1
        self._count = network.num_addresses - 2
        self._next = 0
        self._of_pod: dict[str, int] = {}
        self._taken: dict[int, str] = {}

    def learn(self, pod: JsonObject) -> None:
        """Reserve the address in the pod's status, if it is in the range and free."""
        shown = shown_address(pod)
        uid: str = pod["metadata"]["uid"]
        if shown is None or shown not in self._network or uid in self._of_pod:
            return
        if self._taken.setdefault(int(shown), uid) == uid:
            self._of_pod[uid] = int(shown)

    def address_of(self, pod: JsonObject) -> str:
        """The pod's address; assigned at the first call. Raises `AddressesExhausted`."""
        self.learn(pod)
        uid: str = pod["metadata"]["uid"]
        found = self._of_pod.get(uid)
        if found is None:
            found = self._of_pod[uid] = self._free()
            self._taken[found] = uid
        return str(IPv4Address(found))

    def release(self, uid: str) -> None:
        """Release the address of a deleted pod; no effect if it has none."""
        address = self._of_pod.pop(uid, None)
        if address is not None:
            del self._taken[address]

    def _free(self) -> int:
        # Round robin, so that an address that a client may still use is not reused soon.
        for _ in range(self._count):
            address = self._first + self._next
            self._next = (self._next + 1) % self._count
            if address not in self._taken:
                return address
        raise AddressesExhausted(f"all {self._count} addresses of {self._network} are in use")


def shown_address(pod: JsonObject) -> IPv4Address | None:
    """The IPv4 address in the pod's status."""
    text = (pod.get("status") or {}).get("podIP")
    if not isinstance(text, str):
        return None
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found if isinstance(found, IPv4Address) else None
