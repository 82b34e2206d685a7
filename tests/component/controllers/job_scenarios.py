# SPDX-License-Identifier: Apache-2.0
"""The scenarios: every rule of a Job once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import anyio

from multikueue.api.objects import JsonObject
from tests.component.controllers.cluster_cases import PATIENCE
from tests.component.controllers.scenarios import Play, Scenario, Stage, by_hand, has, index_of, living, on_nodes
from tests.support.polling import comes_to_hold

SCENARIOS: Final[list[Scenario]] = []


def scenario(title: str, spec: dict[str, Any]) -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        SCENARIOS.append(Scenario(title=title, spec=spec, play=play))
        return play

    return add


@scenario("three pods complete, two at a time", on_nodes(parallelism=2, completions=3))
async def _(stage: Stage) -> None:
    await stage.over("Complete")


@scenario("each index completes", on_nodes(parallelism=3, completions=3, completionMode="Indexed"))
async def _(stage: Stage) -> None:
    await stage.over("Complete")


@scenario("a work queue is done when one pod succeeds and the others end", by_hand(parallelism=2))
async def _(stage: Stage) -> None:
    await stage.running(2)
    await stage.end()
    await stage.running(1)
    await stage.end()
    await stage.over("Complete")


@scenario("the first failure is one too many", by_hand(backoffLimit=0, parallelism=2, completions=2))
async def _(stage: Stage) -> None:
    await stage.running(2)
    await stage.end(code=1)
    await stage.over("Failed")


@scenario("a pod that failed is replaced after a while", by_hand(backoffLimit=2))
async def _(stage: Stage) -> None:
    await stage.running(1)
    await stage.end(code=1)
    await stage.until("a second pod", lambda _, pods: len(pods) == 2)
    await stage.running(1)
    await stage.end()
    await stage.over("Complete")


@scenario("no completions are wanted", by_hand(completions=0))
async def _(stage: Stage) -> None:
    await stage.over("Complete")


@scenario("no pods are wanted", by_hand(parallelism=0))
async def _(stage: Stage) -> None:
    await stage.until("started", lambda job, _: bool((job.get("status") or {}).get("startTime")))


@scenario("a job that starts suspended is resumed", by_hand(suspend=True))
async def _(stage: Stage) -> None:
    await stage.until("suspended", lambda job, _: has(job, "Suspended"))
    await stage.patch({"suspend": False})
    await stage.running(1)
    await stage.end()
    await stage.over("Complete")


@scenario("a running job is suspended", by_hand(parallelism=2))
async def _(stage: Stage) -> None:
    await stage.running(2)
    await stage.patch({"suspend": True})
    await stage.until("suspended", lambda job, pods: has(job, "Suspended") and not pods)


@scenario("a running job is suspended and resumed", on_nodes({"multikueue.io/run-for": "forever"}, parallelism=2))
async def _(stage: Stage) -> None:
    await stage.until("ready", lambda job, _: (job.get("status") or {}).get("ready") == 2)
    await stage.patch({"suspend": True})
    await stage.until(
        "suspended", lambda job, pods: has(job, "Suspended") and not pods and not job["status"].get("terminating")
    )
    await stage.patch({"suspend": False})
    await stage.until("ready again", lambda job, _: (job.get("status") or {}).get("ready") == 2)


@scenario("parallelism falls and rises", by_hand(parallelism=3, completions=6))
async def _(stage: Stage) -> None:
    await stage.running(3)
    await stage.patch({"parallelism": 1})
    await stage.until("one pod", lambda job, pods: len(pods) == 1 and job["status"].get("active") == 1)
    await stage.patch({"parallelism": 2})
    await stage.running(2)


@scenario(
    "an indexed job shrinks and grows with its completions",
    by_hand(parallelism=2, completions=2, completionMode="Indexed"),
)
async def _(stage: Stage) -> None:
    await stage.running(2)
    await stage.patch({"parallelism": 3, "completions": 3})
    await stage.running(3)
    await stage.end(index=2)
    await stage.until("counted", lambda job, _: job["status"].get("completedIndexes") == "2")
    await stage.patch({"parallelism": 2, "completions": 2})
    await stage.until("forgotten", lambda job, _: not job["status"].get("completedIndexes"))


@scenario(
    "an exit code fails the whole job",
    by_hand(
        parallelism=2,
        completions=2,
        podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]},
    ),
)
async def _(stage: Stage) -> None:
    await stage.running(2)
    await stage.end(code=42)
    await stage.over("Failed")


@scenario(
    "a disruption is ignored",
    by_hand(
        backoffLimit=0,
        podFailurePolicy={
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
    ),
)
async def _(stage: Stage) -> None:
    await stage.running(1)
    await stage.end(code=1, disrupted=True)
    await stage.until("a second pod", lambda _, pods: len(pods) == 2)
    await stage.running(1)
    await stage.end()
    await stage.over("Complete")


@scenario(
    "a disruption fails the job",
    by_hand(
        podFailurePolicy={
            "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
    ),
)
async def _(stage: Stage) -> None:
    await stage.running(1)
    await stage.end(code=1, disrupted=True)
    await stage.over("Failed")


@scenario(
    "a counted exit code is a failure like any other",
    by_hand(
        backoffLimit=0,
        podFailurePolicy={
            "rules": [
                {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [1], "containerName": "main"}},
                {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
            ]
        },
    ),
)
async def _(stage: Stage) -> None:
    await stage.running(1)
    await stage.end(code=3)
    await stage.over("Failed")


@scenario(
    "each index has a limit of its own",
    by_hand(
        parallelism=3,
        completions=3,
        completionMode="Indexed",
        backoffLimitPerIndex=0,
    ),
)
async def _(stage: Stage) -> None:
    await stage.running(3)
    await stage.end(index=1, code=1)
    await stage.until("counted", lambda job, _: job["status"].get("failedIndexes") == "1")
    await stage.end(index=0)
    await stage.end(index=2)
    await stage.over("Failed")


@scenario(
    "an index is tried again",
    by_hand(
        parallelism=2,
        completions=2,
        completionMode="Indexed",
        backoffLimitPerIndex=1,
    ),
)
async def _(stage: Stage) -> None:
    await stage.running(2)
    await stage.end(index=1, code=1)
    await stage.until("a second try", lambda _, pods: sum(index_of(pod) == 1 for pod in living(pods)) == 1)
    await stage.end(index=0)
    await stage.end(index=1)
    await stage.over("Complete")


@scenario(
    "too many indexes fail",
    by_hand(
        parallelism=4,
        completions=4,
        completionMode="Indexed",
        backoffLimitPerIndex=0,
        maxFailedIndexes=1,
    ),
)
async def _(stage: Stage) -> None:
    await stage.running(4)
    await stage.end(index=0, code=1)
    await stage.until("counted", lambda job, _: job["status"].get("failedIndexes") == "0")
    await stage.end(index=2, code=1)
    await stage.over("Failed")


@scenario(
    "an exit code fails its index",
    by_hand(
        parallelism=2,
        completions=2,
        completionMode="Indexed",
        backoffLimitPerIndex=3,
        podFailurePolicy={"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]},
    ),
)
async def _(stage: Stage) -> None:
    await stage.running(2)
    await stage.end(index=0, code=42)
    await stage.until("counted", lambda job, _: job["status"].get("failedIndexes") == "0")
    await stage.end(index=1)
    await stage.over("Failed")


@scenario(
    "the leader's success is enough",
    by_hand(
        parallelism=3,
        completions=3,
        completionMode="Indexed",
        successPolicy={"rules": [{"succeededIndexes": "0"}]},
    ),
)
async def _(stage: Stage) -> None:
    await stage.running(3)
    await stage.end(index=0)
    await stage.over("Complete")


@scenario(
    "some successes are enough",
    by_hand(
        parallelism=4,
        completions=4,
        completionMode="Indexed",
        successPolicy={"rules": [{"succeededIndexes": "0", "succeededCount": 1}, {"succeededCount": 2}]},
    ),
)
async def _(stage: Stage) -> None:
    await stage.running(4)
    await stage.end(index=1)
    await stage.until("counted", lambda job, _: job["status"].get("completedIndexes") == "1")
    await stage.end(index=3)
    await stage.over("Complete")


@scenario("time is up", by_hand(activeDeadlineSeconds=1))
async def _(stage: Stage) -> None:
    await stage.over("Failed")


@scenario("somebody else runs the job", by_hand(managedBy="example.com/other"))
async def _(stage: Stage) -> None:
    await anyio.sleep(1)


@scenario("a finished job is removed", on_nodes(ttlSecondsAfterFinished=0))
async def _(stage: Stage) -> None:
    async def gone() -> bool:
        status: JsonObject = (await stage.outcome())["status"]
        return status == {"gone": True}

    assert await comes_to_hold(gone, seconds=PATIENCE), "never removed"


@scenario("a pod that is deleted counts as failed and is replaced", by_hand(backoffLimit=3))
async def _(stage: Stage) -> None:
    await stage.running(1)
    first = (await stage.pods())[0]["metadata"]["name"]
    await stage.client.request("DELETE", f"/api/v1/namespaces/{stage.namespace}/pods/{first}")
    await stage.until("another", lambda _, pods: bool(living(pods)) and pods[-1]["metadata"]["name"] != first)
    await stage.running(1)
    await stage.until("counted", lambda job, _: job["status"].get("failed", 0) == 1)


@scenario(
    "only a pod that failed is replaced",
    on_nodes({"multikueue.io/run-for": "forever", "multikueue.io/stop-after": "4s"}, podReplacementPolicy="Failed"),
)
async def _(stage: Stage) -> None:
    await stage.until("ready", lambda job, _: (job.get("status") or {}).get("ready") == 1)
    first = (await stage.pods())[0]["metadata"]["name"]
    await stage.client.request("DELETE", f"/api/v1/namespaces/{stage.namespace}/pods/{first}")
    await stage.until("terminating", lambda job, _: job["status"].get("terminating") == 1)
    await stage.until("another", lambda _, pods: bool(living(pods)) and pods[-1]["metadata"]["name"] != first)
    await stage.until("ready again", lambda job, _: job["status"].get("ready") == 1)


@scenario(
    "a container that fails in place counts",
    on_nodes(
        {"multikueue.io/run-for": "100ms", "multikueue.io/exit-code": "3"}, backoffLimit=1, restartPolicy="OnFailure"
    ),
)
async def _(stage: Stage) -> None:
    await stage.over("Failed")
