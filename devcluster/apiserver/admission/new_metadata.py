# SPDX-License-Identifier: Apache-2.0
"""The metadata of an object while policies and webhooks change it: what they do not see, and what they may not set."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import errors, field_errors
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject

_LABEL: Final = 63
_SUFFIX: Final = 5
"""The lengths of labels, and of the random part of a generated name."""


def hide(review: Review) -> JsonObject:
    """Take from a new object what the server sets only after the mutations, and return it."""
    if review.operation != "CREATE" or review.subresource or review.value is None:
        return {}
    metadata = review.value["metadata"]
    names = ["uid", "creationTimestamp"]
    prefix = metadata.get("generateName")
    if prefix and review.name[:-_SUFFIX] == prefix[: _LABEL - _SUFFIX]:
        names.append("name")
        review.name = ""
    return {name: metadata.pop(name) for name in names if name in metadata}


def check(review: Review) -> None:
    """Refuse metadata that a mutation may not set. Raises `StatusError`."""
    metadata = documents.metadata(review.value or {})
    if review.value is None or review.operation not in ("CREATE", "UPDATE"):
        return
    if review.kind.namespaced and metadata.get("namespace") not in (review.namespace, None, ""):
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    version, name = metadata.get("resourceVersion"), metadata.get("name")
    if review.old is None:
        if not name and review.name and not metadata.get("generateName"):
            cause = field_errors.required("metadata.name", "name or generateName is required")
            raise errors.invalid(errors.About("", review.kind.group, review.kind.kind), [cause])
        return
    if version and version != review.old["metadata"]["resourceVersion"]:
        raise errors.modified(review.kind.about(review.name))
    if name != review.name:
        cause = field_errors.immutable("metadata.name", name or "")
        raise errors.invalid(errors.About(name or "", review.kind.group, review.kind.kind), [cause])


def show(review: Review, hidden: JsonObject) -> None:
    """Set it again; what a mutation has set instead is void."""
    if hidden and review.value is not None:
        review.value["metadata"].update(hidden)
        review.name = hidden.get("name", review.name)
