# SPDX-License-Identifier: Apache-2.0
"""Which certificate requests of agents are approved."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from manager.registration.approval import Approve, Deny, Verdict, Wait, judge
from multikueue.api.constants import AGENT_GROUP
from multikueue.kube.rest.certificates import new_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
Object = dict[str, Any]
TOKEN = "system:serviceaccount:kueue-system:bootstrap-mk-w1"
AGENT = "system:mk:cluster:w1"


def request(
    *,
    user: str = AGENT,
    groups: tuple[str, ...] = (AGENT_GROUP,),
    by: str = TOKEN,
    name: str = "mk-w1-t1",
    uid: str = "cluster-1",
    groups_of_requester: tuple[str, ...] = (AGENT_GROUP,),
    **spec: Any,
) -> Object:
    pem = new_request(user, groups).request
    return {
        "metadata": {"name": name, "uid": "r1", "annotations": {"multikueue.io/cluster-uid": uid} if uid else {}},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": 86400,
            "usages": ["digital signature", "client auth"],
            "username": by,
            "groups": list(groups_of_requester) if by.startswith("system:mk:") else [],
            **spec,
        },
    }


def registration(*, accepted: bool = True, **status: str) -> Object:
    bootstrap = {"id": "t1", "expirationTime": "2026-01-01T13:00:00Z"}
    return {"spec": {"accepted": accepted, "bootstrap": bootstrap}, "status": status}


def verdict(asked: Object, known: Object | None) -> Verdict:
    return judge(asked, known, cluster="w1", namespace="kueue-system", now=NOW)


def test_a_first_request_by_the_token_of_the_cluster_is_approved_and_pins_it() -> None:
    assert verdict(request(), registration()) == Approve("cluster-1", redeems="t1")


def test_it_waits_until_the_cluster_is_accepted() -> None:
    found = verdict(request(), registration(accepted=False))
    assert isinstance(found, Wait)
    assert "mkctl cluster approve w1" in found.message


def test_the_request_that_redeemed_the_token_may_be_judged_again() -> None:
    found = verdict(request(), registration(usedBootstrap="t1", usedBy="r1", clusterUID="cluster-1"))
    assert found == Approve("cluster-1", redeems="t1")


def test_a_renewal_by_the_certificate_itself_is_approved() -> None:
    asked = request(by=AGENT, name="mk-w1-renewal")
    assert verdict(asked, registration(clusterUID="cluster-1")) == Approve("cluster-1")


@pytest.mark.parametrize(
    ("asked", "known", "reason"),
    [
        (request(), None, "NotRegistered"),
        (request(), registration(usedBootstrap="t1", usedBy="another"), "TokenUsed"),
        (request(name="mk-w1-t0"), registration(), "UnknownToken"),
        (request(uid="cluster-2"), registration(clusterUID="cluster-1"), "ClusterUIDMismatch"),
        (request(uid=""), registration(), "NoClusterUID"),
        (request(by=AGENT, uid="cluster-2"), registration(clusterUID="cluster-1"), "ClusterUIDMismatch"),
        (request(by=AGENT), registration(accepted=False, clusterUID="cluster-1"), "NotAccepted"),
        (request(by=AGENT), registration(), "NotPinned"),
        (request(by="system:mk:cluster:w2"), registration(), "WrongRequester"),
        (request(by=AGENT, groups_of_requester=()), registration(clusterUID="cluster-1"), "WrongRequester"),
        (request(by="tenant", name="mk-w1-renewal"), registration(clusterUID="cluster-1"), "WrongRequester"),
        (request(by="system:serviceaccount:default:bootstrap-mk-w1"), registration(), "WrongRequester"),
        (request(user="system:mk:cluster:w2"), registration(), "WrongSubject"),
        (request(groups=("system:masters",)), registration(), "WrongSubject"),
        (request(groups=(AGENT_GROUP, "system:masters")), registration(), "WrongSubject"),
        (request(groups=()), registration(), "WrongSubject"),
        (request(signerName="kubernetes.io/kube-apiserver-client-kubelet"), registration(), "WrongSigner"),
        (request(expirationSeconds=None), registration(), "TooLong"),
        (request(expirationSeconds=864000), registration(), "TooLong"),
        (request(usages=["client auth", "server auth"]), registration(), "WrongUsages"),
        (request(usages=["digital signature"]), registration(), "WrongUsages"),
        (request(request="bm9uc2Vuc2U="), registration(), "BadRequest"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_is_denied(asked: Object, known: Object | None, reason: str) -> None:
    found = verdict(asked, known)
    assert isinstance(found, Deny)
    assert found.reason == reason


def test_a_token_that_has_expired_is_denied() -> None:
    found = judge(
        request(),
        registration(),
        cluster="w1",
        namespace="kueue-system",
        now=datetime(2026, 1, 1, 13, tzinfo=UTC),
    )
    assert isinstance(found, Deny)
    assert found.reason == "TokenExpired"
