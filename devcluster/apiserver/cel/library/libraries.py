# SPDX-License-Identifier: Apache-2.0
"""The libraries of lists, optional values, sets (`sets.contains`), addresses and networks.

Every failure is a `CelError`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from devcluster.apiserver.cel.library.formatting import quote
from devcluster.apiserver.cel.library.named import FORMAT_LIBRARIES
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.values import Optional
from devcluster.apiserver.codec.documents import JsonValue

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface
_LONGEST: Final = 10_000_000
"""A list that is longer is not made."""
_PREFIX: Final = re.compile("0|[1-9][0-9]{0,2}")


def _distinct(items: list[JsonValue]) -> list[JsonValue]:
    found: list[JsonValue] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _flatten(items: list[JsonValue], depth: int = 1) -> list[JsonValue]:
    if depth < 0:
        raise CelError("level must be non-negative")
    found: list[JsonValue] = []
    for item in items:
        found += _flatten(item, depth - 1) if isinstance(item, list) and depth else [item]
    return found


def _slice(items: list[JsonValue], start: int, end: int) -> list[JsonValue]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(items):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _range(count: int) -> list[JsonValue]:
    if count > _LONGEST:
        raise CelError("operation cancelled: actual cost limit exceeded")
    return list(range(count))


def _at(index: int) -> Callable[[list[JsonValue]], Optional]:
    return lambda items: Optional(True, items[index]) if items else Optional(False)


def _unwrapped(items: list[Optional]) -> list[JsonValue]:
    return [item.value for item in items if item.present]


SEQUENCE_METHODS: Final[dict[str, Callable[..., JsonValue]]] = {
    "distinct": _distinct,
    "first": _at(0),
    "flatten": _flatten,
    "last": _at(-1),
    "slice": _slice,
    "sort": sorted,
    "unwrapOpt": _unwrapped,
}
SEQUENCE_LIBRARIES: Final[dict[tuple[str, str], Callable[..., JsonValue]]] = {
    ("lists", "range"): _range,
    ("optional", "none"): lambda: Optional(False),
    ("optional", "of"): lambda value: Optional(True, value),
    ("optional", "ofNonZeroValue"): lambda value: Optional(True, value) if value else Optional(False),
    ("optional", "unwrap"): _unwrapped,
}
"""The functions that are called through their library's name."""


def ip(text: str) -> Address:
    """An address; zones and IPv4 addresses mapped into IPv6 are refused."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError as error:
        raise CelError(f"IP Address '{text}' parse error during conversion from string: {error}") from error
    if isinstance(found, ipaddress.IPv6Address) and (found.scope_id or found.ipv4_mapped):
        raise CelError(f"IP Address '{text}' is neither a plain IPv4 nor a plain IPv6 address")
    return found


def cidr(text: str) -> Network:
    """A network with the address that it was written with."""
    address, slash, prefix = text.partition("/")
    if not slash or not _PREFIX.fullmatch(prefix):
        raise CelError(f"network address parse error during conversion from string: {text}")
    ip(address)
    try:
        return ipaddress.ip_interface(text)
    except ValueError as error:
        raise CelError(f"network address parse error during conversion from string: {error}") from error


def _reads(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except CelError:
        return False
    return True


def _canonical(text: str) -> bool:
    return str(ip(text)) == text


def _is_global(address: Address) -> bool:
    """Whether the address is global unicast, which private addresses are as well."""
    several = address.is_multicast or address == ipaddress.IPv4Address("255.255.255.255")
    return not (several or address.is_unspecified or address.is_loopback or address.is_link_local)


def _is_link_local_multicast(address: Address) -> bool:
    group = "224.0.0.0/24" if address.version == 4 else "ff02::/16"
    return address in ipaddress.ip_network(group)


def _contains_ip(network: Network, address: Address | str) -> bool:
    return (ip(address) if isinstance(address, str) else address) in network.network


def _contains_cidr(network: Network, other: Network | str) -> bool:
    inner = cidr(other) if isinstance(other, str) else other
    return inner.ip in network.network and inner.network.prefixlen >= network.network.prefixlen


def _contained(inner: list[JsonValue], outer: list[JsonValue]) -> bool:
    return all(item in outer for item in inner)


LIBRARIES: Final[dict[tuple[str, str], Callable[..., JsonValue]]] = {
    **FORMAT_LIBRARIES,
    **SEQUENCE_LIBRARIES,
    ("strings", "quote"): quote,
    ("jsonpatch", "escapeKey"): lambda key: key.replace("~", "~0").replace("/", "~1"),
    ("sets", "contains"): lambda left, right: _contained(right, left),
    ("sets", "equivalent"): lambda left, right: _contained(left, right) and _contained(right, left),
    ("sets", "intersects"): lambda left, right: any(item in right for item in left),
    ("ip", "isCanonical"): _canonical,
}
"""The functions that are called through their library's name."""
ADDRESS_FUNCTIONS: Final[dict[str, Callable[..., JsonValue]]] = {
    "ip": ip,
    "isIP": lambda text: _reads(ip, text),
    "cidr": cidr,
    "isCIDR": lambda text: _reads(cidr, text),
}
ADDRESS_METHODS: Final[dict[str, Callable[..., JsonValue]]] = {
    "family": lambda address: address.version,
    "isGlobalUnicast": _is_global,
    "isLinkLocalMulticast": _is_link_local_multicast,
    "isLinkLocalUnicast": lambda address: address.is_link_local,
    "isLoopback": lambda address: address.is_loopback,
    "isUnspecified": lambda address: address.is_unspecified,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "prefixLength": lambda network: network.network.prefixlen,
    "masked": lambda network: ipaddress.ip_interface(str(network.network)),
    "ip": lambda network: network.ip,
}
