# SPDX-License-Identifier: Apache-2.0
"""The auth provider `oidc` of a kubeconfig: an id-token that is renewed with a refresh-token.

The connection to the identity provider is always verified. kubernetes_asyncio does not verify it without
`idp-certificate-authority-data`, and fails with it (ADR 0015).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import orjson

from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned
from multikueue.kube.rest.tls import Pem, TlsSource

_EXPIRY_SKEW: Final = timedelta(seconds=60)
_TIMEOUT_SECONDS: Final = 30.0
_MAX_SECONDS: Final = 253_402_300_799  # the end of the year 9999
_DISCOVERY: Final = "/.well-known/openid-configuration"


class OidcToken:
    """The id-token of one user; concurrent requests share one renewal. Renewed tokens are not written to the file."""

    def __init__(self, settings: Mapping[str, Any], *, clock: Clock) -> None:
        """`settings` is `auth-provider.config`. Raises `BadInput` if the CA is not base64."""
        self._settings = settings
        self._clock = clock
        self._id_token = str(settings.get("id-token") or "")
        self._refresh_token = str(settings.get("refresh-token") or "")
        self._lock = anyio.Lock()
        self._tls = TlsSource(authority=_authority(settings), clock=clock)

    async def token(self) -> str | None:
        """The id-token; renewed if it expires soon. Raises `BadInput` if that fails."""
        async with self._lock:
            if not self._id_token or self._is_expired():
                await self._renew()
            return self._id_token

    async def refresh(self) -> bool:
        """Renew the id-token at the next request."""
        self._id_token = ""
        return bool(self._refresh_token)

    def _is_expired(self) -> bool:
        parts = self._id_token.split(".")
        try:
            claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            expiry = claims.get("exp")
        except (IndexError, AttributeError, ValueError) as error:
            raise BadInput("auth provider oidc: the id-token is not a JWT") from error
        if expiry is None:
            return False
        seconds = parse_unsigned(expiry, field="auth provider oidc: exp of the id-token", maximum=_MAX_SECONDS)
        return self._clock.now() >= datetime.fromtimestamp(seconds, UTC) - _EXPIRY_SKEW

    async def _renew(self) -> None:
        if not self._refresh_token:
            raise BadInput("auth provider oidc: the id-token is missing or expired, and there is no refresh-token")
        issuer = str(self._settings.get("idp-issuer-url") or "").rstrip("/")
        if not issuer.startswith("https://"):
            raise BadInput(f"auth provider oidc: idp-issuer-url must be an https URL, found {issuer!r}")
        client = str(self._settings.get("client-id") or "")
        secret = str(self._settings.get("client-secret") or "")
        form = {"grant_type": "refresh_token", "refresh_token": self._refresh_token}
        pair = base64.b64encode(f"{client}:{secret}".encode()).decode()
        headers = {"Authorization": f"Basic {pair}"} if secret else {}
        try:
            async with aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS), raise_for_status=True, trust_env=True
            ) as session:
                async with session.get(
                    f"{issuer}{_DISCOVERY}", ssl=self._tls.context(), allow_redirects=False
                ) as response:
                    endpoint = str((await response.json()).get("token_endpoint") or "")
                if not endpoint.startswith("https://"):
                    raise BadInput(f"auth provider oidc: token_endpoint must be an https URL, found {endpoint!r}")
                async with session.post(
                    endpoint,
                    data=form if secret else {**form, "client_id": client},
                    headers=headers,
                    ssl=self._tls.context(),
                    allow_redirects=False,
                ) as response:
                    answer = await response.json()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, AttributeError) as error:
            raise BadInput(f"auth provider oidc: cannot renew the id-token at {issuer}: {error}") from error
        if not isinstance(answer, dict) or not answer.get("id_token"):
            raise BadInput(f"auth provider oidc: the answer of {issuer} has no id_token")
        self._id_token = str(answer["id_token"])
        self._refresh_token = str(answer.get("refresh_token") or self._refresh_token)


def _authority(settings: Mapping[str, Any]) -> Pem:
    data, path = settings.get("idp-certificate-authority-data"), settings.get("idp-certificate-authority")
    if data:
        try:
            return Pem(base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError, TypeError) as error:
            raise BadInput("auth provider oidc: idp-certificate-authority-data is not base64") from error
    return Pem(path=Path(str(path))) if path else Pem()
