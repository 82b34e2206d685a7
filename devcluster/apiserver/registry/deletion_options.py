# SPDX-License-Identifier: Apache-2.0
"""The options of a deletion: policy, grace period, preconditions and dry run, from a body and from parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

from devcluster.apiserver import errors
from devcluster.apiserver.codec import decoding, documents, protobuf
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.http.requests import Request
from devcluster.apiserver.registry.options import dry_run_problems

_POLICIES: Final = ("Background", "Foreground", "Orphan")
_FORMS: Final[dict[str, tuple[type, str]]] = {
    "gracePeriodSeconds": (int, "int64"),
    "preconditions": (dict, "v1.Preconditions"),
    "orphanDependents": (bool, "bool"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
    "dryRun": (list, "[]string"),
}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options of a deletion."""

    policy: str = ""
    grace: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False

    def check_preconditions(self, metadata: JsonObject, about: errors.About) -> None:
        """Refuse another object than the one that is meant, and another version. Raises `StatusError`."""
        if self.uid and self.uid != metadata["uid"]:
            text = (
                f"the UID in the precondition ({self.uid}) does not match the UID in record ({metadata['uid']}). "
                "The object might have been deleted and then recreated"
            )
            raise errors.conflict(about, text)
        if self.resource_version and self.resource_version != metadata["resourceVersion"]:
            text = (
                f"the ResourceVersion in the precondition ({self.resource_version}) does not match the "
                f"ResourceVersion in record ({metadata['resourceVersion']}). The object might have been modified"
            )
            raise errors.conflict(about, text)


def _body(request: Request) -> JsonObject:
    """The body of a deletion as `DeleteOptions` of any version. Raises `StatusError`."""
    if not request.body:
        return {}
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media == protobuf.MEDIA_TYPE:
        return protobuf.decode(request.body)
    if media and media not in decoding.READ:
        raise decoding.unknown_format()
    body = decoding.head(request.body, is_yaml=media.endswith("yaml")) or {}
    given = body.get("kind")
    if given and given != "DeleteOptions":
        version = body.get("apiVersion", "")
        raise errors.bad_request(
            f'no kind "{given}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    for name, (form, go_type) in _FORMS.items():
        entry = body.get(name)
        if entry is not None and (not isinstance(entry, form) or (form is int and isinstance(entry, bool))):
            where = f"Go struct field DeleteOptions.{name} of type {go_type}"
            raise errors.bad_request(f"json: cannot unmarshal {decoding.json_type(entry)} into {where}")
    return body


def read_options(request: Request) -> DeleteOptions:
    """The options of a deletion, from body and parameters. Raises `StatusError`."""
    given = parse_qs(request.query_text, keep_blank_values=True).get("dryRun", []) if "dryRun" in request.query else []
    return options_of(_body(request), request.query, dry_runs=given)


def options_of(body: JsonObject, query: Mapping[str, str], *, dry_runs: Sequence[str]) -> DeleteOptions:
    """The options in a body and in parameters, of which `dry_runs` is one. Raises `StatusError`."""
    policy = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
    orphan = body.get("orphanDependents", query.get("orphanDependents"))
    if orphan is not None and policy:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        cause = errors.StatusCause("FieldValueInvalid", text, "propagationPolicy")
        raise errors.invalid(errors.About("", "meta.k8s.io", "DeleteOptions"), [cause])
    if orphan is not None:
        policy = "Orphan" if orphan in (True, "true") else "Background"
    about = errors.About("", "meta.k8s.io", "DeleteOptions")
    wrong = dry_run_problems(body.get("dryRun") or dry_runs)
    if wrong:
        raise errors.invalid(about, wrong)
    if policy and policy not in _POLICIES:
        listed = ", ".join(f'"{name}"' for name in ("Foreground", "Background", "Orphan"))
        text = f'Unsupported value: "{policy}": supported values: {listed}, "nil"'
        raise errors.invalid(about, [errors.StatusCause("FieldValueNotSupported", text, "propagationPolicy")])
    grace = body.get("gracePeriodSeconds")
    if grace is None and query.get("gracePeriodSeconds"):
        try:
            grace = int(query["gracePeriodSeconds"])
        except ValueError:
            text = f'strconv.ParseInt: parsing "{query["gracePeriodSeconds"]}": invalid syntax'
            raise errors.bad_request(text) from None
    if isinstance(grace, int) and grace < 0:
        grace = 1
    preconditions = documents.child(body, "preconditions")
    dry_run = bool(body.get("dryRun") or dry_runs)
    return DeleteOptions(policy, grace, preconditions.get("uid", ""), preconditions.get("resourceVersion", ""), dry_run)
