# SPDX-License-Identifier: Apache-2.0
"""Credentials: certificates, tokens, none, and the errors for invalid ones."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final

import pytest

from tests.conformance.access.conftest import WHO
from tests.conformance.conftest import Judge
from tests.conformance.harness import Answer, Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("identities")
ACCOUNTS: Final = "/api/v1/namespaces/{ns}/serviceaccounts"
MAPS: Final = "/api/v1/namespaces/{ns}/configmaps"
WHOAMI: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ME: Final = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}


def _account(name: str = "robot") -> dict[str, Any]:
    return {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": name}}


def _request(**spec: object) -> dict[str, Any]:
    return {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}


async def _token(side: Side, **spec: object) -> str:
    found = await side.quietly(Exchange("POST", f"{ACCOUNTS}/robot/token", _request(**spec)))
    token = found.body["status"]["token"]
    assert isinstance(token, str)
    return token


def _bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _claims(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    found: dict[str, Any] = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


@CASES.case("a certificate names a user and groups")
async def _(side: Side) -> None:
    found = await side.server.send(Exchange("POST", WHOAMI, _ME, headers={WHO: "jane"}))
    info = found.body["status"]["userInfo"]
    side.note("identity", {**info, "extra": {key: value[0][:11] for key, value in info["extra"].items()}})
    await side.get(MAPS, headers={WHO: "jane"})


@CASES.case("a request without credentials is anonymous")
async def _(side: Side) -> None:
    anonymous = {WHO: ""}
    await side.get(MAPS, headers=anonymous)
    await side.get("/api", headers=anonymous)
    await side.get("/apis", headers=anonymous)
    await side.get("/openapi/v2", headers=anonymous)
    await side.get("/metrics", headers=anonymous)
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        found = await side.server.send(Exchange("GET", path, headers=anonymous))
        side.note(path, found.status)
    await side.post(WHOAMI, _ME, headers=anonymous)


@CASES.case("credentials that are worth nothing are refused")
async def _(side: Side) -> None:
    for value in ("Bearer nonsense", "Bearer a.b.c", "Basic YTpi", "Bearer", "Bearer ", "Negotiate x", "bearer x"):
        await side.get(MAPS, headers={"Authorization": value})
        await side.get("/healthz", headers={"Authorization": value})


@CASES.case("a certificate counts before a token")
async def _(side: Side) -> None:
    await side.get(MAPS, headers={WHO: "jane", "Authorization": "Bearer nonsense"})


@CASES.case("a certificate of another authority is not valid")
async def _(side: Side) -> None:
    await side.get(MAPS, headers={WHO: "stranger"})


@CASES.case("impersonation needs a right")
async def _(side: Side) -> None:
    for headers in (
        {"Impersonate-User": "joe"},
        {"Impersonate-User": "joe", "Impersonate-Group": "g"},
        {"Impersonate-User": "system:serviceaccount:default:robot"},
        {"Impersonate-Group": "g"},
    ):
        await side.get(MAPS, headers={WHO: "jane", **headers})
    role = {
        "kind": "ClusterRole",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "{id}"},
        "rules": [{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["joe"]}],
    }
    binding = {
        "kind": "ClusterRoleBinding",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "{id}"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}],
        "roleRef": {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "{id}"},
    }
    await side.quietly(Exchange("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role))
    await side.quietly(Exchange("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding))
    as_joe = {WHO: "jane", "Impersonate-User": "joe"}
    for _ in range(200):
        found = await side.server.send(Exchange("GET", side.own(MAPS), headers=as_joe))
        if "joe" in found.body["message"]:
            break
    for headers in (
        {},
        {"Impersonate-Group": "g"},
        {"Impersonate-Uid": "u"},
        {"Impersonate-Extra-Scopes": "view"},
        {"Impersonate-User": "jill"},
    ):
        await side.get(MAPS, headers={**as_joe, **headers})


@CASES.case("the names of groups and extra values may have commas")
async def _(side: Side) -> None:
    review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    for group in ("a,b", ",,,chameleon", "a, b"):
        headers = {"Impersonate-User": "joe", "Impersonate-Group": group, "Impersonate-Extra-Scopes": "view, edit"}
        await side.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review, headers=headers)


@CASES.case("an account's token is its identity")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", ACCOUNTS, _account()))
    token = await _token(side)
    found = await side.server.send(Exchange("POST", WHOAMI, _ME, headers=_bearing(token)))
    info = found.body["status"]["userInfo"]
    side.note("identity", {**info, "extra": sorted(info["extra"])})
    await side.get(MAPS, headers=_bearing(token))
    await side.get(MAPS, headers=_bearing(token[:-4] + "AAAA"))
    head, _, signature = token.split(".")
    forged = {**_claims(token), "sub": "system:serviceaccount:kube-system:admin"}
    body = urlsafe_b64encode(json.dumps(forged).encode()).decode().rstrip("=")
    await side.get(MAPS, headers=_bearing(f"{head}.{body}.{signature}"))


@CASES.case("a token has the requested claims")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", ACCOUNTS, _account()))
    plain = _claims(await _token(side))
    side.note("claims", sorted(plain))
    side.note("ours", sorted(plain["kubernetes.io"]))
    side.note("length", plain["exp"] - plain["iat"])
    side.note("audience", len(plain["aud"]))
    long = _claims(await _token(side, audiences=["a", "b"], expirationSeconds=7200))
    side.note("long", [long["aud"], long["exp"] - long["iat"]])


def _known(found: Answer) -> Any:
    """The answer to a request for a token, less the token."""
    status = found.body.get("status")
    if isinstance(status, dict) and "token" in status:
        return {**found.body, "status": {**status, "token": "<token>"}}
    return found.body


@CASES.case("requests for tokens are judged")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", ACCOUNTS, _account()))
    for spec in (
        {},
        {"expirationSeconds": 599},
        {"expirationSeconds": 600},
        {"expirationSeconds": 2**33},
        {"audiences": ["x"]},
        {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "gone"}},
        {"boundObjectRef": {"kind": "What", "apiVersion": "v1", "name": "x"}},
        {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "gone"}},
    ):
        found = await side.server.send(
            Exchange("POST", side.own(f"{ACCOUNTS}/robot/token"), _request(**spec), headers={})
        )
        body = _known(found)
        if isinstance(body.get("spec"), dict) and "audiences" not in spec:
            body = {**body, "spec": {**body["spec"], "audiences": len(body["spec"]["audiences"])}}
        side.note(f"token {spec}", [found.status, body])
    await side.post(f"{ACCOUNTS}/nobody/token", _request())
    await side.get(f"{ACCOUNTS}/robot/token")


@CASES.case("a bound token names its object")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", ACCOUNTS, _account()))
    secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}}
    await side.quietly(Exchange("POST", "/api/v1/namespaces/{ns}/secrets", secret))
    token = await _token(side, boundObjectRef={"kind": "Secret", "apiVersion": "v1", "name": "s"})
    side.note("claims", sorted(_claims(token)["kubernetes.io"]))
    await side.get(MAPS, headers=_bearing(token))


@CASES.case("a token is reviewed for its audiences")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", ACCOUNTS, _account()))
    token, other = await _token(side), await _token(side, audiences=["x", "y"])
    for value, audiences in ((token, []), (token, ["x"]), (other, []), (other, ["x"]), (other, ["y", "z", "x"])):
        spec = {"token": value, **({"audiences": audiences} if audiences else {})}
        found = await side.server.send(
            Exchange("POST", REVIEWS, {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": spec})
        )
        status = found.body["status"]
        if "user" in status:
            status["user"].get("extra", {}).clear()
        if not audiences:
            status.pop("audiences", None)
        side.note("review", [found.status, status])
    await side.get(MAPS, headers=_bearing(other))


@CASES.case("the keys of tokens are published")
async def _(side: Side) -> None:
    keys = await side.server.send(Exchange("GET", "/openid/v1/jwks", accept="*/*"))
    side.note("keys", [sorted(key) for key in keys.body["keys"]])
    side.note("type", [keys.status, keys.content_type])
    configuration = await side.server.send(Exchange("GET", "/.well-known/openid-configuration"))
    side.note("configuration", sorted(configuration.body))
    side.note("type", [configuration.status, configuration.content_type])


@pytest.mark.parametrize("case", CASES.params())
async def test_an_identity_is_found_as_a_real_server_finds_it(gate_judge: Judge, case: Case) -> None:
    """The user, the anonymous user, or an error."""
    await gate_judge(case)
