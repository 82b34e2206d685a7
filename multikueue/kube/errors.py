# SPDX-License-Identifier: Apache-2.0
"""The errors of requests to an API server.

Owns the mapping from a `Status` to a class, by its reason first and its code second. Promises that a message names the
cluster, the verb and the object. `Unreachable` is for every case without an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import orjson

from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.parsing import parse_unsigned


class KubeError(MultikueueError):
    """Any failure of a request."""


class Unreachable(KubeError):
    """No answer: refused, reset, timed out, or interrupted. Whether the request took effect is unknown.

    `sent` is False if there was no connection, so that any verb may be retried. `hung` is True if the server accepted
    the request and did not answer in time.
    """

    def __init__(self, message: str, *, sent: bool = True, hung: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.hung = hung


class NoCredentials(Unreachable):
    """The token or certificate is not available at the moment: a file is missing, a plug-in fails."""

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
    """The details of a `Status`."""

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
        """The seconds after which the server asks for a retry."""
        return self.details.retry_after

    @property
    def denied_by_webhook(self) -> bool:
        """Whether an admission webhook refused the object; otherwise a 403 means that a right is missing."""
        return self.message.startswith(_DENIAL)


class BadRequest(ApiError):
    """The server cannot process the request."""

    reasons = frozenset({"BadRequest"})
    code = 400


class Unauthorized(ApiError):
    """The credentials are missing, unknown or expired."""

    reasons = frozenset({"Unauthorized"})
    code = 401


class Forbidden(ApiError):
    """The user may not do this, or admission refused the object; see `denied_by_webhook`."""

    reasons = frozenset({"Forbidden"})
    code = 403


class NotFound(ApiError):
    """There is no such object, or no such resource since its CRD is not installed."""

    reasons = frozenset({"NotFound"})
    code = 404


class MethodNotAllowed(ApiError):
    """The resource does not support that verb."""

    reasons = frozenset({"MethodNotAllowed"})
    code = 405


class Conflict(ApiError):
    """The object has changed meanwhile, or another manager owns a field."""

    reasons = frozenset({"Conflict"})
    code = 409


class AlreadyExists(ApiError):
    """There is an object of that name already."""

    reasons = frozenset({"AlreadyExists"})


class Gone(ApiError):
    """The resource version or continue token is too old; list again."""

    reasons = frozenset({"Expired", "Gone"})
    code = 410


class UnsupportedMediaType(ApiError):
    """The server does not accept bodies of that type."""

    reasons = frozenset({"UnsupportedMediaType"})
    code = 415


class Invalid(ApiError):
    """The object is invalid; the causes have the fields."""

    reasons = frozenset({"Invalid"})
    code = 422


class TooManyRequests(ApiError):
    """The server is overloaded; nothing was done."""

    reasons = frozenset({"TooManyRequests"})
    code = 429


class InternalError(ApiError):
    """The server failed."""

    reasons = frozenset({"InternalError"})
    code = 500


class ServiceUnavailable(ApiError):
    """The server, or an aggregated one behind it, is not available at the moment."""

    reasons = frozenset({"ServiceUnavailable"})
    code = 503


class ServerTimeout(ApiError):
    """The server timed out; whether the request took effect is unknown."""

    reasons = frozenset({"ServerTimeout", "Timeout"})
    code = 504


class VersionTooLarge(ServerTimeout):
    """The server has not reached that resource version: it was restored from a backup, or is a replica that lags."""

    reasons = frozenset()
    code = 0
    cause: ClassVar = "ResourceVersionTooLarge"


_DENIAL: Final = 'admission webhook "'  # the start of the message of every denial by a webhook

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
_MAX_RETRY_AFTER: Final = 3600
_MAX_TEXT: Final = 300  # more of a proxy's HTML page is of no use


def from_response(*, request: str, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> ApiError:
    """The error of an answer with status 400 or more; a body that is not a `Status` is quoted."""
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
    """The error of a `Status` object, for example from a watch."""
    own_code = status.get("code")
    code = own_code if isinstance(own_code, int) and 100 <= own_code < 1000 else code or 500
    reason = str(status.get("reason") or "")
    found = status.get("details")
    raw: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    causes = raw.get("causes")
    details = Details(
        name=str(raw.get("name", "")),
        kind=str(raw.get("kind", "")),
        uid=str(raw.get("uid", "")),
        causes=tuple(
            Cause(*(str(cause.get(field, "")) for field in ("reason", "message", "field")))
            for cause in (causes if isinstance(causes, list) else ())
            if isinstance(cause, Mapping)
        ),
        retry_after=_seconds(raw.get("retryAfterSeconds") or (headers or {}).get("Retry-After")),
    )
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code, ApiError)
    if any(cause.reason == VersionTooLarge.cause for cause in details.causes):
        kind = VersionTooLarge
    return kind(request=request, status=code, reason=reason, message=str(status.get("message") or ""), details=details)


def _seconds(value: object) -> float | None:
    """Whole seconds, at most an hour; None for anything else, such as an HTTP date, which no API server sends."""
    try:
        return float(min(parse_unsigned(value, field="Retry-After"), _MAX_RETRY_AFTER)) if value else None
    except BadInput:
        return None
