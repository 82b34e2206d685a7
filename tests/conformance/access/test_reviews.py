# SPDX-License-Identifier: Apache-2.0
"""Access, token and self-subject reviews, and impersonation."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.access.actors import MAPS, REVIEWS, USER, acting, grant, grant_everywhere, rule, user
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("reviews")
WHOAMI: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_PATHS: Final = {
    "SubjectAccessReview": f"{REVIEWS}/subjectaccessreviews",
    "SelfSubjectAccessReview": f"{REVIEWS}/selfsubjectaccessreviews",
    "LocalSubjectAccessReview": f"{REVIEWS}/namespaces/{{ns}}/localsubjectaccessreviews",
    "SelfSubjectRulesReview": f"{REVIEWS}/selfsubjectrulesreviews",
}


def review(kind: str, spec: dict[str, Any], **more: Any) -> Exchange:
    """A review of rights."""
    body = {"kind": kind, "apiVersion": "authorization.k8s.io/v1", "spec": spec}
    return Exchange("POST", _PATHS[kind], body, **more)


def whoami(**headers: str) -> Exchange:
    """Reads the user that the server sees."""
    body = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    return Exchange("POST", WHOAMI, body, headers={key.replace("_", "-"): value for key, value in headers.items()})


def _get(name: str = "", **more: str) -> dict[str, Any]:
    return {"resourceAttributes": {"verb": "get", "resource": "configmaps", "namespace": "{ns}", "name": name, **more}}


@CASES.case("rights of a user are reviewed with their source")
async def _(side: Side) -> None:
    await grant(side, rule("get", names=("a",)))
    for wanted in (_get("a"), _get("b"), _get(), _get("a", subresource="status"), _get("a", namespace="default")):
        await side.exchange(review("SubjectAccessReview", {"user": USER, **wanted}))
        await side.exchange(review("SelfSubjectAccessReview", wanted, headers=acting()))
        await side.exchange(review("SelfSubjectAccessReview", wanted))


@CASES.case("rights of groups and accounts are reviewed with their source")
async def _(side: Side) -> None:
    group = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "team-{id}"}
    account = {"kind": "ServiceAccount", "namespace": "{ns}", "name": "robot"}
    await grant_everywhere(side, rule("get"), subjects=(group, account, user()))
    await side.exchange(review("SubjectAccessReview", {"groups": ["team-{id}"], **_get()}))
    await side.exchange(review("SubjectAccessReview", {"user": "x", "groups": ["a", "team-{id}"], **_get()}))
    await side.exchange(review("SubjectAccessReview", {"user": "system:serviceaccount:{ns}:robot", **_get()}))
    await side.exchange(review("SubjectAccessReview", {"user": USER, "extra": {"k": ["v"]}, "uid": "u", **_get()}))
    await side.exchange(review("LocalSubjectAccessReview", {"user": USER, **_get()}))
    await side.exchange(review("LocalSubjectAccessReview", {"user": USER, **_get(namespace="default")}))


@CASES.case("rights to paths are reviewed")
async def _(side: Side) -> None:
    path = {"nonResourceAttributes": {"verb": "get", "path": "/metrics-{id}"}}
    await grant_everywhere(side, {"verbs": ["get"], "nonResourceURLs": ["/metrics-{id}"]})
    await side.exchange(review("SubjectAccessReview", {"user": USER, **path}))
    await side.exchange(review("SelfSubjectAccessReview", path, headers=acting()))
    await side.exchange(review("LocalSubjectAccessReview", {"user": USER, **path}))


_WRONG: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "nobody": ("SubjectAccessReview", _get()),
    "nothing": ("SubjectAccessReview", {"user": "x"}),
    "nothing of oneself": ("SelfSubjectAccessReview", {}),
    "two things at once": (
        "SubjectAccessReview",
        {"user": "x", **_get(), "nonResourceAttributes": {"verb": "get", "path": "/"}},
    ),
    "a local thing without a place": ("LocalSubjectAccessReview", {"user": "x", **_get(namespace="")}),
    "the rules of no namespace": ("SelfSubjectRulesReview", {}),
}
for _name, (_kind, _spec) in _WRONG.items():
    CASES.exchanges(f"a review of {_name} is refused", review(_kind, _spec))


@CASES.case("the rules of the user are listed")
async def _(side: Side) -> None:
    await grant(side, rule("get", "list", names=("a",)), rule("get", on=("pods", "pods/log")))
    found = await side.server.send(
        Exchange(
            "POST",
            _PATHS["SelfSubjectRulesReview"],
            side.own({"spec": {"namespace": "{ns}"}}),
            headers={key: side.own(value) for key, value in acting().items()},
        )
    )
    status = found.body["status"]
    side.note("rules", [rule for rule in status["resourceRules"] if "resourceNames" in rule or "pods" in str(rule)])
    side.note("paths", sorted(map(str, status["nonResourceRules"])))
    side.note("rest", {**status, "resourceRules": None, "nonResourceRules": None})


@CASES.case("everybody learns who they are")
async def _(side: Side) -> None:
    await side.exchange(whoami(Impersonate_User="jane"))
    await side.exchange(whoami(Impersonate_User="jane", Impersonate_Group="g"))
    await side.exchange(whoami(Impersonate_User="jane", Impersonate_Uid="u-1"))
    await side.exchange(whoami(Impersonate_User="jane", Impersonate_Extra_Scopes="view"))
    await side.exchange(whoami(Impersonate_User="jane", **{"Impersonate_Extra_Acme.com%2fproject": "x"}))
    await side.exchange(whoami(Impersonate_User="system:serviceaccount:{ns}:robot"))
    await side.exchange(whoami(Impersonate_User="system:anonymous"))
    await side.exchange(whoami(Impersonate_User="jane", Impersonate_Group="system:unauthenticated"))


@CASES.case("impersonation needs a user")
async def _(side: Side) -> None:
    await side.exchange(whoami(Impersonate_Group="g"))
    await side.exchange(whoami(Impersonate_Uid="u"))
    await side.exchange(whoami(Impersonate_Extra_Scopes="view"))


_GROUPS: Final = "authentication.k8s.io"


@CASES.case("reviews of an impersonator without a right")
async def _(side: Side) -> None:
    """An impersonated user cannot impersonate, so reviews report what the impersonator would get."""
    await grant_everywhere(
        side,
        rule("impersonate", on=("users",), names=("jane",)),
        rule("impersonate", on=("userextras/scopes",), group=_GROUPS),
    )
    for resource, group, name in (
        ("users", "", "jane"),
        ("users", "", "joe"),
        ("groups", "", "jane"),
        ("userextras", _GROUPS, "x"),
        ("uids", _GROUPS, "u"),
    ):
        attributes = {"verb": "impersonate", "resource": resource, "group": group, "name": name}
        await side.exchange(review("SubjectAccessReview", {"user": USER, "resourceAttributes": attributes}))


@CASES.case("a review is not stored, and is no list")
async def _(side: Side) -> None:
    await side.get(f"{REVIEWS}/subjectaccessreviews")
    await side.get(f"{REVIEWS}/subjectaccessreviews/x")
    await side.get(WHOAMI)
    await side.post(f"{MAPS}/x", {})


@CASES.case("a review has no table")
async def _(side: Side) -> None:
    spec = {"nonResourceAttributes": {"path": "/", "verb": "get"}}
    body = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": spec}
    for accept in (
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "text/html",
    ):
        await side.post(f"{REVIEWS}/selfsubjectaccessreviews", body, accept=accept)


@CASES.case("a token that is none is no one's")
async def _(side: Side) -> None:
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    for spec in ({"token": "nonsense"}, {"token": ""}, {}, {"token": "a.b.c", "audiences": ["x"]}):
        await side.post(path, {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": spec})


@pytest.mark.parametrize("case", CASES.params())
async def test_a_review_answers_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """Rights, rules and identities."""
    await judge(case)
