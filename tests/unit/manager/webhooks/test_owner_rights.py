# SPDX-License-Identifier: Apache-2.0
"""Who may write an owner reference that leaves an object to the quota of its owner."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import orjson
import pytest

from devcluster.apiserver.cel.compile import Expression
from manager.namespaces import ManagedNamespaces
from manager.seals import Seals
from manager.webhooks import owner_rights
from manager.webhooks.configurations import WebhookClientConfig, gate_hooks, owner_hooks
from manager.webhooks.external_kinds import DiscoveredKinds, KindFinder
from manager.webhooks.handlers import Handlers
from manager.webhooks.owner_rights import OwnerRights
from manager.webhooks.review import AdmissionRequest, ReviewAnswer
from multikueue.api import configuration_file
from multikueue.api.configuration import OwnerReferenceSettings
from multikueue.api.resource import JOBS, NAMESPACES
from multikueue.core.clock import ManualClock
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.rest.client import KubeClient
from tests.support.access import NobodyMay, NoKinds, nobody_owns
from tests.unit.manager.webhooks.test_webhooks import Seen

pytestmark = pytest.mark.anyio

KIM = {"username": "kim", "groups": ["system:authenticated"]}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "big", "uid": "u", "controller": True}


class Asked:
    """Answers as it was told, and remembers what it was asked."""

    def __init__(self, answer: Callable[[dict[str, Any]], str]) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    async def refusal(self, user: dict[str, Any], attributes: dict[str, Any]) -> str:
        self.asked.append(attributes)
        return self.answer(attributes)


async def refusal(rights: OwnerRights, user: dict[str, Any] = KIM) -> str:
    return await rights.refusal(user, owner=OWNER, resource=JOBS, namespace="team")


async def test_a_user_who_may_update_the_finalizers_of_all_owners_is_asked_about_once_a_minute() -> None:
    access, clock = Asked(lambda attributes: ""), ManualClock()
    rights = OwnerRights(access, OwnerReferenceSettings(), clock)
    assert await refusal(rights) == await refusal(rights) == ""
    right = {"verb": "update", "group": "batch", "version": "v1", "resource": "jobs", "subresource": "finalizers"}
    assert access.asked == [{**right, "namespace": "team"}]
    clock.advance(61)
    assert await refusal(rights) == ""
    assert len(access.asked) == 2


async def test_a_right_to_one_owner_by_name_counts_for_that_one() -> None:
    access = Asked(lambda attributes: "" if attributes.get("name") == "big" else "kim may not")
    rights = OwnerRights(access, OwnerReferenceSettings(), ManualClock())
    assert await refusal(rights) == ""
    other = await rights.refusal(KIM, owner={**OWNER, "name": "other"}, resource=JOBS, namespace="team")
    assert 'Job "other"' in other


async def test_a_denial_is_not_kept_so_that_a_right_counts_as_soon_as_it_is_given() -> None:
    answers = ["kim may not", "kim may not", ""]
    rights = OwnerRights(Asked(lambda attributes: answers.pop(0)), OwnerReferenceSettings(), ManualClock())
    assert "the right to update jobs.batch/finalizers in namespace team: kim may not" in await refusal(rights)
    assert await refusal(rights) == ""


async def test_no_answer_is_a_refusal_in_time_for_the_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        async def refusal(self, user: dict[str, Any], attributes: dict[str, Any]) -> str:
            await anyio.sleep_forever()
            return ""

    monkeypatch.setattr(owner_rights, "_ANSWER_SECONDS", 0.0)
    assert "cannot check within" in await refusal(OwnerRights(Silent(), OwnerReferenceSettings(), ManualClock()))


@pytest.mark.parametrize(
    ("user", "trusted"),
    [
        pytest.param("system:kube-controller-manager", True, id="the controllers of Kubernetes as one user"),
        pytest.param("system:serviceaccount:kube-system:job-controller", True, id="one of them"),
        pytest.param("system:serviceaccount:spark:driver", True, id="a user that the Configuration names"),
        pytest.param("system:serviceaccount:kube-systems:job-controller", False, id="not of a similar namespace"),
        pytest.param("kim", False, id="not any user"),
    ],
)
def test_users_that_are_trusted(user: str, trusted: bool) -> None:
    settings = OwnerReferenceSettings(trusted_users=("system:serviceaccount:spark:*",))
    assert OwnerRights(NobodyMay(), settings, ManualClock()).trusts({"username": user}) is trusted


def test_everyone_is_trusted_where_the_configuration_says_so() -> None:
    found = configuration_file.load("integrations: {ownerReferences: {trust: Everyone}}").integrations.owner_references
    assert OwnerRights(NobodyMay(), found, ManualClock()).trusts(KIM)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        pytest.param("{trust: Nobody}", "integrations.ownerReferences.trust", id="an unknown value"),
        pytest.param("{trustedUsers: ['*']}", "integrations.ownerReferences.trustedUsers", id="a pattern of all users"),
    ],
)
def test_mistakes_in_the_configuration_are_named(settings: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        configuration_file.load(f"integrations: {{ownerReferences: {settings}}}")


def handler(kinds: KindFinder) -> Callable[[AdmissionRequest], Any]:
    seen = Seen()
    seen.put(NAMESPACES, "team", {})
    configuration = configuration_file.load("manageJobsWithoutQueueName: true")
    hooks = Handlers(
        configuration=configuration,
        caches=cast(Any, seen),
        registry=JobRegistry(("batch/job", "pod"), external=("Flow.v1.flows.example.com",)),
        namespaces=ManagedNamespaces(configuration, seen.view(NAMESPACES)),
        jobs=True,
        seals=Seals.drawn(ManualClock()),
        access=NobodyMay(),
        owners=nobody_owns(),
        kinds=kinds,
    ).by_path()
    return hooks["/validate-owners--v1-pod"][1]


def naming(version: str, kind: str, **more: Any) -> AdmissionRequest:
    owner = {"apiVersion": version, "kind": kind, "name": "big", "uid": "u", "controller": True} | more
    pod = {"metadata": {"name": "p", "ownerReferences": [owner]}, "spec": {}}
    return AdmissionRequest(uid="u", operation="CREATE", namespace="team", name="p", user_info=KIM, object=pod)


async def test_an_owner_of_a_kind_that_another_controller_queues_is_found_by_discovery() -> None:
    resources = [{"name": "flows/status", "kind": "Flow"}, {"name": "flows", "kind": "Flow"}]
    asked: list[str] = []

    async def request(verb: str, path: str, **more: Any) -> Any:
        asked.append(path)
        return SimpleNamespace(json=lambda: orjson.loads(orjson.dumps({"resources": resources})))

    review = handler(DiscoveredKinds(cast(KubeClient, SimpleNamespace(request=request))))
    for _ in range(2):
        answer = await review(naming("flows.example.com/v1", "Flow"))
        assert "update flows.flows.example.com/finalizers in namespace team" in answer.forbidden
    assert asked == ["/apis/flows.example.com/v1"]


async def test_a_kind_that_cannot_be_found_is_refused_and_its_version_goes_into_no_path() -> None:
    async def request(verb: str, path: str, **more: Any) -> Any:
        raise AssertionError(path)

    review = handler(DiscoveredKinds(cast(KubeClient, SimpleNamespace(request=request))))
    answer = await review(naming("flows.example.com/v1?x=%2e%2e", "Flow"))
    assert "expected a version such as v1" in answer.forbidden


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        pytest.param("apps/v1", "ReplicaSet", id="a kind that is not queued"),
        pytest.param("batch/v2", "Jobs", id="a kind that does not exist"),
    ],
)
async def test_other_owners_are_anyones(version: str, kind: str) -> None:
    assert await handler(NoKinds())(naming(version, kind)) == ReviewAnswer()


OWNED = {"metadata": {"ownerReferences": [OWNER]}}
HELD = {"metadata": {"ownerReferences": [{**OWNER, "controller": False}]}}


@pytest.mark.parametrize(
    ("operation", "user", "new", "old", "asked"),
    [
        pytest.param("CREATE", "kim", OWNED, None, True, id="a pod with an owner"),
        pytest.param("CREATE", "kim", HELD, None, False, id="not one that its owner does not control"),
        pytest.param("CREATE", "kim", {"metadata": {}}, None, False, id="not one without an owner"),
        pytest.param("CREATE", "system:kube-controller-manager", OWNED, None, False, id="not one of a controller"),
        pytest.param("UPDATE", "kim", OWNED, {"metadata": {}}, True, id="an owner that is added"),
        pytest.param("UPDATE", "kim", OWNED, HELD, True, id="an owner that begins to control it"),
        pytest.param("UPDATE", "kim", OWNED, OWNED, False, id="not an update that leaves its owner"),
        pytest.param("UPDATE", "kim", HELD, OWNED, False, id="not one that takes its owner away"),
    ],
)
def test_the_webhook_is_asked_about(
    operation: str, user: str, new: dict[str, Any], old: dict[str, Any] | None, asked: bool
) -> None:
    (hook,) = owner_hooks(JobRegistry(("pod",)))
    entry = hook.manifest(WebhookClientConfig(ca_bundle="", url="https://hub"), excluded=("kube-system",))
    variables = {"request": {"operation": operation, "userInfo": {"username": user}}, "object": new, "oldObject": old}
    answers = [
        Expression(each["expression"], variables=frozenset(variables)).evaluate(variables)
        for each in entry["matchConditions"]
    ]
    assert all(answers) is asked


GATED = {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/other"}]}}
OPEN = {"spec": {"schedulingGates": [{"name": "example.com/other"}]}}


@pytest.mark.parametrize(
    ("user", "new", "old", "asked"),
    [
        pytest.param("kim", OPEN, GATED, True, id="a gate that is removed"),
        pytest.param("kim", {"spec": {}}, GATED, True, id="all gates that are removed"),
        pytest.param("the-manager", OPEN, GATED, False, id="not one that the manager removes"),
        pytest.param("kim", {"spec": {}}, OPEN, False, id="not another gate"),
        pytest.param("kim", GATED, GATED, False, id="not an update that leaves it"),
    ],
)
def test_the_webhook_of_gates_is_asked_about(user: str, new: dict[str, Any], old: dict[str, Any], asked: bool) -> None:
    (hook,) = gate_hooks(JobRegistry(("pod",)))
    target = WebhookClientConfig(ca_bundle="", url="https://hub")
    entry = hook.manifest(target, excluded=("kube-system",), user="the-manager")
    variables = {"request": {"operation": "UPDATE", "userInfo": {"username": user}}, "object": new, "oldObject": old}
    answers = [
        Expression(each["expression"], variables=frozenset(variables)).evaluate(variables)
        for each in entry["matchConditions"]
    ]
    assert all(answers) is asked
