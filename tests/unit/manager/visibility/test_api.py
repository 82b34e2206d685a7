# SPDX-License-Identifier: Apache-2.0
"""The requests of visibility.kueue.x-k8s.io: who may make them, and what is answered."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from manager.visibility.api import ApiAnswer, ApiRequest, VisibilityApi
from manager.visibility.pending import MAX_LIMIT, PendingPage, PendingWorkloads
from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.kube.serving.reviews import ReviewedUser, Unreviewed, UserReviews

pytestmark = pytest.mark.anyio

GROUP = "/apis/visibility.kueue.x-k8s.io"
OF_CLUSTER_QUEUE = f"{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads"
OF_LOCAL_QUEUE = f"{GROUP}/v1beta1/namespaces/team/localqueues/lq/pendingworkloads"
ALICE = ReviewedUser(name="alice", groups=("system:authenticated",))
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Pending(PendingWorkloads):
    """One ClusterQueue and one LocalQueue; an item is what was asked."""

    def __init__(self) -> None:
        self.pages: list[PendingPage] = []

    async def of_cluster_queue(self, name: str, page: PendingPage) -> list[JsonObject] | None:
        self.pages.append(page)
        return [{"of": name}] if name == "cq" else None

    async def of_local_queue(self, key: Key, page: PendingPage) -> list[JsonObject] | None:
        self.pages.append(page)
        return [{"of": str(key)}] if key == Key("team", "lq") else None


class Rights(UserReviews):
    """An API server that allows what it is given."""

    def __init__(self, allowed: bool | None) -> None:
        self.allowed = allowed
        self.asked: list[JsonObject] = []

    async def allows(self, user: ReviewedUser, attributes: JsonObject) -> bool:
        self.asked.append(attributes["resourceAttributes"])
        if self.allowed is None:
            raise Unreviewed("cannot authenticate the request: no answer")
        return self.allowed


class Served:
    """The API with what it was asked."""

    def __init__(self, allowed: bool | None = True) -> None:
        self.pending, self.rights = Pending(), Rights(allowed)
        self._api = VisibilityApi(self.pending, self.rights)

    async def get(
        self, path: str, *, user: ReviewedUser = ALICE, method: str = "GET", accept: str = "", **query: str
    ) -> ApiAnswer:
        return await self._api.answer(ApiRequest(method=method, path=path, query=query, accept=accept), user)


def body(answer: ApiAnswer) -> Any:
    return orjson.loads(answer.body)


@pytest.mark.parametrize(
    ("path", "version", "of", "attributes"),
    [
        (OF_CLUSTER_QUEUE, "v1beta2", "cq", {"resource": "clusterqueues", "name": "cq"}),
        (OF_LOCAL_QUEUE, "v1beta1", "team/lq", {"resource": "localqueues", "name": "lq", "namespace": "team"}),
        (f"{GROUP}/v1beta1/clusterqueues/c%71/pendingworkloads/", "v1beta1", "cq", {"resource": "clusterqueues"}),
    ],
)
async def test_a_summary_is_served_to_a_user_who_may_get_it(
    path: str, version: str, of: str, attributes: dict[str, str]
) -> None:
    served = Served()
    answer = await served.get(path)
    assert answer.status == 200
    assert body(answer) == {
        "kind": "PendingWorkloadsSummary",
        "apiVersion": f"visibility.kueue.x-k8s.io/{version}",
        "metadata": {},
        "items": [{"of": of}],
    }
    (asked,) = served.rights.asked
    assert asked == {
        "verb": "get",
        "group": "visibility.kueue.x-k8s.io",
        "version": version,
        "subresource": "pendingworkloads",
        "name": "cq",
        **attributes,
    }


async def test_a_user_without_the_right_is_refused_with_what_is_missing() -> None:
    served = Served(allowed=False)
    answer = await served.get(OF_LOCAL_QUEUE)
    assert (answer.status, body(answer)["reason"]) == (403, "Forbidden")
    assert body(answer)["message"] == (
        'localqueues.visibility.kueue.x-k8s.io "lq" is forbidden: User "alice" cannot get resource'
        ' "localqueues/pendingworkloads" in API group "visibility.kueue.x-k8s.io" in the namespace "team"'
    )
    assert served.pending.pages == []


async def test_without_a_review_nothing_is_served() -> None:
    served = Served(allowed=None)
    assert (await served.get(OF_CLUSTER_QUEUE)).status == 503
    assert served.pending.pages == []


async def test_administrators_of_the_cluster_are_not_reviewed() -> None:
    served = Served(allowed=None)
    admin = ReviewedUser(name="kubernetes-admin", groups=("system:masters",))
    assert (await served.get(OF_CLUSTER_QUEUE, user=admin)).status == 200


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ({}, PendingPage(0, 1000)),
        ({"limit": "0", "offset": ""}, PendingPage(0, 1000)),
        ({"limit": "5", "offset": "7"}, PendingPage(7, 5)),
        ({"limit": "1000000"}, PendingPage(0, MAX_LIMIT)),
    ],
)
async def test_limit_and_offset_have_a_default_and_a_maximum(query: dict[str, str], page: PendingPage) -> None:
    served = Served()
    await served.get(OF_CLUSTER_QUEUE, user=ALICE, **query)
    assert served.pending.pages == [page]


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "٣", "9" * 19, "1" * 5000])
@pytest.mark.parametrize("name", ["limit", "offset"])
async def test_what_is_no_number_is_a_bad_request(name: str, text: str) -> None:
    answer = await Served().get(OF_CLUSTER_QUEUE, user=ALICE, **{name: text})
    assert (answer.status, body(answer)["reason"]) == (400, "BadRequest")
    assert body(answer)["message"].startswith(f"{name}: ")
    assert len(answer.body) < 1000


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (f"{GROUP}/v1beta2/clusterqueues/x/pendingworkloads", 'clusterqueue.visibility.kueue.x-k8s.io "x" not found'),
        (
            f"{GROUP}/v1beta2/namespaces/x/localqueues/lq/pendingworkloads",
            'localqueue.visibility.kueue.x-k8s.io "lq" not found',
        ),
    ],
)
async def test_a_queue_that_does_not_exist_is_not_found(path: str, message: str) -> None:
    answer = await Served().get(path)
    assert (answer.status, body(answer)["message"]) == (404, message)
    assert body(answer)["details"]["group"] == "visibility.kueue.x-k8s.io"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/apis/other",
        f"{GROUP}/v1alpha1",
        f"{GROUP}/v1alpha1/clusterqueues/cq/pendingworkloads",
        f"{GROUP}/v1beta2/clusterqueues",
        f"{GROUP}/v1beta2/clusterqueues/cq",
        f"{GROUP}/v1beta2/clusterqueues/cq/status",
        f"{GROUP}/v1beta2/clusterqueues//pendingworkloads",
        f"{GROUP}/v1beta2/localqueues/lq/pendingworkloads",
        f"{GROUP}/v1beta2/namespaces//localqueues/lq/pendingworkloads",
        f"{GROUP}/v1beta2/namespaces/team/clusterqueues/cq/pendingworkloads",
        f"{OF_CLUSTER_QUEUE}/more",
    ],
)
async def test_other_paths_are_not_served_and_nothing_is_reviewed(path: str) -> None:
    served = Served()
    answer = await served.get(path)
    assert (answer.status, body(answer)["kind"], served.rights.asked) == (404, "Status", [])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "MADE-UP"])
async def test_nothing_can_be_written(method: str) -> None:
    answer = await Served().get(OF_CLUSTER_QUEUE, method=method)
    assert (answer.status, body(answer)["reason"]) == (405, "MethodNotAllowed")


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("application/json;q=0.9, */*;q=0.1", 200),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 200),
        ("application/vnd.kubernetes.protobuf", 406),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", 406),
        ("text/html", 406),
    ],
)
async def test_json_is_served_to_clients_that_accept_it(accept: str, status: int) -> None:
    answer = await Served().get(OF_CLUSTER_QUEUE, accept=accept)
    assert (answer.status, answer.content_type) == (status, "application/json")


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/apis", "APIGroupList"), (GROUP, "APIGroup"), (f"{GROUP}/v1beta1", "APIResourceList")],
)
async def test_discovery_needs_no_right(path: str, kind: str) -> None:
    served = Served(allowed=False)
    answer = await served.get(path)
    assert (answer.status, body(answer)["kind"], served.rights.asked) == (200, kind, [])


async def test_both_versions_have_the_same_resources_and_the_newer_one_is_preferred() -> None:
    served = Served()
    assert body(await served.get(GROUP))["preferredVersion"]["version"] == "v1beta2"
    found = [body(await served.get(f"{GROUP}/{version}")) for version in ("v1beta1", "v1beta2")]
    assert found[0]["resources"] == found[1]["resources"]
    assert [(each["name"], each["namespaced"], each["verbs"]) for each in found[0]["resources"]] == [
        ("clusterqueues", False, []),
        ("clusterqueues/pendingworkloads", False, ["get"]),
        ("localqueues", True, []),
        ("localqueues/pendingworkloads", True, ["get"]),
    ]


async def test_discovery_has_the_aggregated_form_where_the_client_accepts_it() -> None:
    answer = await Served().get("/apis", accept=f"{AGGREGATED},application/json")
    assert answer.content_type == AGGREGATED
    (group,) = body(answer)["items"]
    assert [version["version"] for version in group["versions"]] == ["v1beta2", "v1beta1"]
    older = await Served().get("/apis", accept=AGGREGATED.replace("v=v2;", "v=v2beta1;"))
    assert body(older)["apiVersion"] == "apidiscovery.k8s.io/v2beta1"


async def test_the_index_of_openapi_leads_to_documents_that_describe_both_paths() -> None:
    served = Served()
    index = body(await served.get("/openapi/v3"))["paths"]
    assert sorted(index) == ["apis/visibility.kueue.x-k8s.io/v1beta1", "apis/visibility.kueue.x-k8s.io/v1beta2"]
    for entry in index.values():
        found = body(await served.get(entry["serverRelativeURL"].partition("?")[0]))
        assert len(found["paths"]) == 2
        references = {
            operation["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
            for operation in found["paths"].values()
        }
        assert {name.removeprefix("#/components/schemas/") for name in references} <= found["components"][
            "schemas"
        ].keys()
    older = body(await served.get("/openapi/v2"))
    assert len(older["paths"]) == 4
    assert len(older["definitions"]) == 4
