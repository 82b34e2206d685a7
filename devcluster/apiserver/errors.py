# SPDX-License-Identifier: Apache-2.0
"""API errors: `metav1.Status` with reason, code, details and causes.

One constructor for each, with Kubernetes' texts, since kubectl prints them and clients match on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from devcluster.apiserver.codec.documents import JsonObject
from multikueue.core.errors import MultikueueError


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One problem of one field."""

    reason: str
    message: str
    field: str = ""

    def document(self) -> JsonObject:
        """The entry in `details.causes`."""
        found = {"reason": self.reason, "message": self.message, "field": self.field}
        return {name: text for name, text in found.items() if text}


@dataclass(frozen=True, slots=True)
class About:
    """The object that an answer names."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""

    @property
    def qualified(self) -> str:
        """`plural.group`, as in messages."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


@dataclass(slots=True)
class StatusError(MultikueueError):
    """A request failed."""

    code: int
    reason: str
    message: str
    about: About | None = None
    causes: Sequence[StatusCause] = ()
    retry_after: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    token: str = ""
    """The token with which a list can continue."""

    def __str__(self) -> str:
        return f"{self.code} {self.reason}: {self.message}"

    def document(self) -> JsonObject:
        """The `Status` to send."""
        found: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.token} if self.token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            found["reason"] = self.reason
        if self.about is not None or self.causes or self.retry_after is not None:
            about = self.about or About()
            details: JsonObject = {}
            for key in ("name", "group", "kind", "uid"):
                if value := getattr(about, key):
                    details[key] = value
            if self.causes:
                details["causes"] = [cause.document() for cause in self.causes]
            if self.retry_after is not None:
                details["retryAfterSeconds"] = self.retry_after
            found["details"] = details
        found["code"] = self.code
        return found


def joined(texts: list[str]) -> str:
    """Several errors as one text."""
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def success(about: About) -> JsonObject:
    """The answer to a finished deletion."""
    details = {key: value for key in ("name", "group", "kind", "uid") if (value := getattr(about, key))}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def bad_request(message: str) -> StatusError:
    """400: the request cannot be decoded."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """401: the user is unknown."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(about: About, why: str) -> StatusError:
    """403: the user may not do that."""
    named = f'{about.qualified} "{about.name}"' if about.name else about.qualified
    return StatusError(403, "Forbidden", f"{named} is forbidden: {why}" if named else f"forbidden: {why}", about)


def not_found(about: About) -> StatusError:
    """404: the object does not exist."""
    return StatusError(404, "NotFound", f'{about.qualified} "{about.name}" not found', about)


def no_resource() -> StatusError:
    """404: the resource does not exist."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", About())


def method_not_allowed() -> StatusError:
    """405: the resource does not have the method."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, About())


def unsupported_verb(about: About, verb: str) -> StatusError:
    """405: the kind does not have the verb."""
    message = f'{verb} is not supported on resources of kind "{about.qualified}"'
    return StatusError(405, "MethodNotAllowed", message, about)


def already_exists(about: About, *, deleting: bool = False) -> StatusError:
    """409 on create: the object exists, and may be `deleting`."""
    text = f'{about.qualified} "{about.name}" already exists'
    return StatusError(409, "AlreadyExists", f"object is being deleted: {text}" if deleting else text, about)


def conflict(about: About, why: str) -> StatusError:
    """409 on update."""
    message = f'Operation cannot be fulfilled on {about.qualified} "{about.name}": {why}'
    return StatusError(409, "Conflict", message, about)


def modified(about: About) -> StatusError:
    """409: another write came between."""
    return conflict(
        about, "the object has been modified; please apply your changes to the latest version and try again"
    )


def expired(message: str, *, token: str = "") -> StatusError:
    """410: the history does not go back that far."""
    return StatusError(410, "Expired", message, token=token)


def too_large_version(requested: int, current: int) -> StatusError:
    """504: a resource version from the future."""
    causes = [StatusCause("ResourceVersionTooLarge", "Too large resource version")]
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return StatusError(504, "Timeout", message, None, causes, retry_after=1)


def unsupported_media_type(message: str = "415: Unsupported Media Type") -> StatusError:
    """415: the body has an unsupported media type."""
    return StatusError(415, "UnsupportedMediaType", message, About())


def not_acceptable(message: str) -> StatusError:
    """406: no supported media type is acceptable."""
    return StatusError(406, "NotAcceptable", message)


def unrouted(message: str) -> StatusError:
    """406: no route of the path answers in an acceptable media type."""
    return StatusError(406, "NotAcceptable", message, About())


def invalid(about: About, causes: Sequence[StatusCause]) -> StatusError:
    """422: the object is invalid; the message lists the causes."""
    parts = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    text = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    named = f"{about.kind}.{about.group}" if about.group else about.kind
    return StatusError(422, "Invalid", f'{named} "{about.name}" is invalid: {text}', about, causes)


def rejected() -> StatusError:
    """422 without causes: a JSON patch cannot be applied."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, About())


def internal(message: str) -> StatusError:
    """500."""
    causes = [StatusCause("", message)]
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", None, causes)


def too_many_requests(message: str, *, retry_after: int, causes: Sequence[StatusCause] = ()) -> StatusError:
    """429."""
    return StatusError(429, "TooManyRequests", message, None, causes, retry_after=retry_after)


def service_unavailable(message: str) -> StatusError:
    """503."""
    return StatusError(503, "ServiceUnavailable", message)
