# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between us and an API server, as one tree of errors.

Owns the mapping from a `Status` answer to a class, decided by its reason first and its code second. Promises that a
message names the cluster, the verb and the object. `Unreachable` is for everything that kept an answer from coming.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import orjson

from multikueue.core.errors import MultikueueError


class KubeError(MultikueueError):
    """Any failure of a request."""


class Unreachable(KubeError):
    """No answer came: refused, reset, timed out, or cut in the middle. Whether the request took effect is unknown.

    `sent` is False when the connection was never made, so that any verb may be tried again. `hung` is True when the
    server took the request and did not answer in time.
    """

    def __init__(self, message: str, *, sent: bool = True, hung: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.hung = hung


class NoCredentials(Unreachable):
    """The token or certificate to send cannot be had at the moment: a file is missing, a plug-in fails."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of `details.causes`."""

    reason: str
    message: str
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What a `Status` tells beside its message."""

    name: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after: float | None = field(default=None)


class ApiError(KubeError):
    """The API server answered that the request failed."""

    reasons: ClassVar[frozenset[str]] = frozenset()
    code: ClassVar[int] = 0

    def __init__(self, *, request: str, status: int, reason: str, message: str, details: Details) -> None:
        super().__init__(f"{request}: {message or reason or status}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the server asks to be tried again."""
        return self.details.retry_after


class BadRequest(ApiError):
    """The request makes no sense to the server."""

    reasons = frozenset({"BadRequest"})
    code = 400


class Unauthorized(ApiError):
    """The credentials are missing, unknown or expired."""

    reasons = frozenset({"Unauthorized"})
    code = 401


class Forbidden(ApiError):
    """The identity is known and may not do this."""

    reasons = frozenset({"Forbidden"})
    code = 403


class NotFound(ApiError):
    """No such object, or no such resource: then the CRD is not installed."""

    reasons = frozenset({"NotFound"})
    code = 404


class MethodNotAllowed(ApiError):
    """The resource does not know that verb."""

    reasons = frozenset({"MethodNotAllowed"})
    code = 405


class Conflict(ApiError):
    """The object changed meanwhile, or another manager owns a field."""

    reasons = frozenset({"Conflict"})
    code = 409


class AlreadyExists(ApiError):
    """An object of that name is there already."""

    reasons = frozenset({"AlreadyExists"})


class Gone(ApiError):
    """The resource version or continue token is too old; list anew."""

    reasons = frozenset({"Expired", "Gone"})
    code = 410


class UnsupportedMediaType(ApiError):
    """The server does not read bodies of that type."""

    reasons = frozenset({"UnsupportedMediaType"})
    code = 415


class Invalid(ApiError):
    """The object breaks a rule of its schema or of a webhook; the causes say which."""

    reasons = frozenset({"Invalid"})
    code = 422


class TooManyRequests(ApiError):
    """The server sheds load; nothing was done."""

    reasons = frozenset({"TooManyRequests"})
    code = 429


class InternalError(ApiError):
    """The server failed."""

    reasons = frozenset({"InternalError"})
    code = 500


class ServiceUnavailable(ApiError):
    """The server, or an aggregated one behind it, is not there at the moment."""

    reasons = frozenset({"ServiceUnavailable"})
    code = 503


class ServerTimeout(ApiError):
    """The server gave up; whether the request took effect is unknown."""

    reasons = frozenset({"ServerTimeout", "Timeout"})
    code = 504


class VersionTooLarge(ServerTimeout):
    """The server has yet to reach that resource version: it was put back in time, or a replica lags behind."""

    reasons = frozenset()
    code = 0
    cause: ClassVar = "ResourceVersionTooLarge"


_TREE: Final = (
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    Conflict,
    AlreadyExists,
    Gone,
    UnsupportedMediaType,
    Invalid,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    ServerTimeout,
)
_BY_REASON: Final[dict[str, type[ApiError]]] = {reason: kind for kind in _TREE for reason in kind.reasons}
_BY_CODE: Final[dict[int, type[ApiError]]] = {kind.code: kind for kind in _TREE if kind.code}
_MAX_TEXT: Final = 300  # a proxy's HTML page says no more in its next kilobytes


def from_response(*, request: str, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> ApiError:
    """The error that an answer of status 400 or more means; bodies that are no `Status` are quoted."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict) or parsed.get("kind") != "Status":
        text = body[:_MAX_TEXT].decode(errors="replace").strip()
        parsed = {"code": status, "message": f"answered {status}" + (f": {text}" if text else "")}
    return from_status(request=request, status=parsed, code=status, headers=headers)


def from_status(
    *, request: str, status: Mapping[str, Any], code: int = 0, headers: Mapping[str, str] | None = None
) -> ApiError:
    """The error that a `Status` object means, for example one that came in a watch."""
    code = int(status.get("code") or code or 500)
    reason = str(status.get("reason") or "")
    raw = status.get("details") or {}
    asked = raw.get("retryAfterSeconds") or _seconds((headers or {}).get("Retry-After"))
    details = Details(
        name=raw.get("name", ""),
        kind=raw.get("kind", ""),
        uid=raw.get("uid", ""),
        causes=tuple(
            Cause(cause.get("reason", ""), cause.get("message", ""), cause.get("field", ""))
            for cause in raw.get("causes") or ()
        ),
        retry_after=float(asked) if asked is not None else None,
    )
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code, ApiError)
    if any(cause.reason == VersionTooLarge.cause for cause in details.causes):
        kind = VersionTooLarge
    return kind(request=request, status=code, reason=reason, message=str(status.get("message") or ""), details=details)


def _seconds(header: str | None) -> float | None:
    try:
        return float(header) if header else None
    except ValueError:  # an HTTP date; no API server sends one
        return None
