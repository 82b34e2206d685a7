# SPDX-License-Identifier: Apache-2.0
"""The errors that the API answers with: `metav1.Status` with reason, code, details and causes.

Owns one constructor for each, with Kubernetes' own texts, since kubectl prints them and clients match on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from multikueue.core.errors import MultikueueError
from multikueue.devcluster.apiserver.documents import JsonObject


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong, at one place."""

    reason: str
    message: str
    field: str = ""

    def document(self) -> JsonObject:
        """As it stands in `details.causes`."""
        found = {"reason": self.reason, "message": self.message, "field": self.field}
        return {name: text for name, text in found.items() if text}


@dataclass(frozen=True, slots=True)
class About:
    """The object that an answer is about."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""

    @property
    def qualified(self) -> str:
        """`plural.group`, as messages name resources."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


@dataclass(slots=True)
class StatusError(MultikueueError):
    """A request that is answered with a failure."""

    code: int
    reason: str
    message: str
    about: About | None = None
    causes: Sequence[Cause] = ()
    retry_after: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    token: str = ""
    """Where a list may go on all the same."""

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


def success(about: About) -> JsonObject:
    """What a finished deletion answers."""
    details = {key: value for key in ("name", "group", "kind", "uid") if (value := getattr(about, key))}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def bad_request(message: str) -> StatusError:
    """400: what was sent cannot be read."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """401: nobody knows who asks."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(about: About, why: str) -> StatusError:
    """403: who asks may not."""
    named = f'{about.qualified} "{about.name}"' if about.name else about.qualified
    return StatusError(403, "Forbidden", f"{named} is forbidden: {why}" if named else f"forbidden: {why}", about)


def not_found(about: About) -> StatusError:
    """404: there is no such object."""
    return StatusError(404, "NotFound", f'{about.qualified} "{about.name}" not found', about)


def no_resource() -> StatusError:
    """404: there is no such resource."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", About())


def method_not_allowed() -> StatusError:
    """405: the resource is there, and does not do this."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, About())


def unsupported_verb(about: About, verb: str) -> StatusError:
    """405: the kind does not do this."""
    message = f'{verb} is not supported on resources of kind "{about.qualified}"'
    return StatusError(405, "MethodNotAllowed", message, about)


def already_exists(about: About, *, going: bool = False) -> StatusError:
    """409 on create, of what is there and may be `going`."""
    text = f'{about.qualified} "{about.name}" already exists'
    return StatusError(409, "AlreadyExists", f"object is being deleted: {text}" if going else text, about)


def conflict(about: About, why: str) -> StatusError:
    """409 on update."""
    message = f'Operation cannot be fulfilled on {about.qualified} "{about.name}": {why}'
    return StatusError(409, "Conflict", message, about)


def modified(about: About) -> StatusError:
    """409: somebody wrote in between."""
    return conflict(
        about, "the object has been modified; please apply your changes to the latest version and try again"
    )


def expired(message: str, *, token: str = "") -> StatusError:
    """410: the history does not reach back that far."""
    return StatusError(410, "Expired", message, token=token)


def too_large_version(asked: int, current: int) -> StatusError:
    """504: a resource version from the future."""
    causes = [Cause("ResourceVersionTooLarge", "Too large resource version")]
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, None, causes, retry_after=1)


def unsupported_media_type(message: str = "415: Unsupported Media Type") -> StatusError:
    """415: a body of a type that is not read here."""
    return StatusError(415, "UnsupportedMediaType", message, About())


def not_acceptable(message: str) -> StatusError:
    """406: an answer of a type that is not written here."""
    return StatusError(406, "NotAcceptable", message)


def invalid(about: About, causes: Sequence[Cause]) -> StatusError:
    """422: the object breaks rules; the message is the sum of the causes."""
    parts = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    text = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    named = f"{about.kind}.{about.group}" if about.group else about.kind
    return StatusError(422, "Invalid", f'{named} "{about.name}" is invalid: {text}', about, causes)


def rejected() -> StatusError:
    """422 without a word: a JSON patch that does not fit."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, About())


def internal(message: str) -> StatusError:
    """500."""
    causes = [Cause("", message)]
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", None, causes)


def too_many_requests(message: str, *, retry_after: int, causes: Sequence[Cause] = ()) -> StatusError:
    """429."""
    return StatusError(429, "TooManyRequests", message, None, causes, retry_after=retry_after)


def service_unavailable(message: str) -> StatusError:
    """503."""
    return StatusError(503, "ServiceUnavailable", message)
