# SPDX-License-Identifier: Apache-2.0
"""Users of requests that an API server passes on to an aggregated API (`requestheader` authentication).

The API server publishes in a ConfigMap whose client certificates it uses and in which headers it names the user.
Headers count only on a connection with such a certificate: anyone else could name any user in them.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import anyio
import orjson
from multidict import CIMultiDictProxy

from multikueue.api.objects import JsonObject
from multikueue.api.resource import CONFIG_MAPS
from multikueue.core.errors import BadInput
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.serving.reviews import ReviewedUser

_log = logging.getLogger(__name__)

NAMESPACE: Final = "kube-system"
CONFIG_MAP: Final = "extension-apiserver-authentication"
CHECK_SECONDS: Final = 60.0
"""How often the ConfigMap is read: the longest time for which a new authority is not accepted."""
_RETRY_SECONDS: Final = 5.0
_AUTHENTICATED: Final = "system:authenticated"
_ANONYMOUS: Final = "system:anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedProxy:
    """The API servers that may name users."""

    authorities: str = ""
    """The authorities of their client certificates, PEM; empty: no headers count."""
    names: tuple[str, ...] = ()
    """The common names of these certificates; empty: any."""
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    @classmethod
    def of_config_map(cls, data: JsonObject) -> TrustedProxy:
        """From the ConfigMap's `data`. Raises `BadInput`."""
        authorities = str(data.get("requestheader-client-ca-file") or "")
        if authorities:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=authorities)
            except (ssl.SSLError, ValueError) as error:
                raise BadInput(f"requestheader-client-ca-file holds no usable certificates: {error}") from error
        return cls(
            authorities=authorities,
            names=_names(data, "requestheader-allowed-names"),
            user_headers=_names(data, "requestheader-username-headers"),
            uid_headers=_names(data, "requestheader-uid-headers"),
            group_headers=_names(data, "requestheader-group-headers"),
            extra_prefixes=_names(data, "requestheader-extra-headers-prefix"),
        )

    def user_of(self, headers: CIMultiDictProxy[str], certificate: JsonObject | None) -> ReviewedUser | None:
        """The user that the headers name; None unless a front proxy sent them.

        `certificate` is the verified one of the connection, as `ssl` returns it.
        """
        if not self.authorities or not certificate or not self._is_allowed(certificate):
            return None
        name = next(filter(None, _values(headers, self.user_headers)), "")
        if not name:
            return None
        groups = [*dict.fromkeys(filter(None, _values(headers, self.group_headers)))]
        if name != _ANONYMOUS and _AUTHENTICATED not in groups:
            groups.append(_AUTHENTICATED)
        return ReviewedUser(
            name=name,
            uid=next(filter(None, _values(headers, self.uid_headers)), ""),
            groups=tuple(groups),
            extra=tuple(sorted(self._extra(headers).items())),
        )

    def _is_allowed(self, certificate: JsonObject) -> bool:
        subject = certificate.get("subject") or ()
        return not self.names or any(
            field == "commonName" and value in self.names for part in subject for field, value in part
        )

    def _extra(self, headers: CIMultiDictProxy[str]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for header, value in headers.items():
            for prefix in self.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    name = unquote(header[len(prefix) :].lower())
                    found[name] = (*found.get(name, ()), value)
        return found


class TrustedProxies:
    """The front proxy as the ConfigMap describes it now."""

    def __init__(self, client: KubeClient, *, changed: Callable[[TrustedProxy], None]) -> None:
        """`changed` is called with each new description."""
        self._client = client
        self._changed = changed
        self._logged = ""
        self.current = TrustedProxy()

    async def follow(self) -> None:
        """Read the ConfigMap now and then, until cancelled; a failure is logged once, and the last one stays."""
        while True:
            read = await self._read()
            await anyio.sleep(CHECK_SECONDS if read else _RETRY_SECONDS)

    async def _read(self) -> bool:
        try:
            found = await self._client.get_object(CONFIG_MAPS, CONFIG_MAP, namespace=NAMESPACE)
            new = TrustedProxy.of_config_map(found.get("data") or {})
        except (KubeError, BadInput) as error:
            if str(error) != self._logged:
                self._logged = str(error)
                _log.error("front proxy unknown, aggregated requests are refused error=%s", error)
            return False
        self._logged = ""
        if new != self.current:
            self.current = new
            self._changed(new)
        return True


def _names(data: JsonObject, key: str) -> tuple[str, ...]:
    text = data.get(key)
    if not text:
        return ()
    try:
        found: Any = orjson.loads(text)
    except ValueError as error:
        raise BadInput(f"{key} is not JSON: {error}") from error
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise BadInput(f"{key} is not a list of strings")
    return tuple(found)


def _values(headers: CIMultiDictProxy[str], names: Iterable[str]) -> Iterable[str]:
    return (value for name in names for value in headers.getall(name, ()))
