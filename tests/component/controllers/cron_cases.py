# SPDX-License-Identifier: Apache-2.0
"""What a cluster does with CronJobs, and with pods whose Job was deleted and left them.

A CronJob is due at once when its schedule is yearly and its status says that it last ran the year before. So each case
has one time that is due, whenever it is played, and no minute has to be waited for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from devcluster.resources import CRON_JOBS
from multikueue.api.objects import JsonObject
from multikueue.api.resource import EVENTS, JOBS, PODS, Resource
from multikueue.kube.rest.client import PatchKind
from tests.component.controllers.cluster_cases import Case, Place, case

CRON_CASES: Final[list[Case]] = []
_YEARLY: Final = "0 0 1 1 *"
_TIMES: Final = ("creationTimestamp", "lastScheduleTime", "lastSuccessfulTime", "completionTime")
_NOWHERE: Final = {"nodeSelector": {"no": "where"}, "containers": [{"name": "main", "image": "x"}]}
_JOB: Final[JsonObject] = {"parallelism": 0, "template": {"spec": {"restartPolicy": "Never", **_NOWHERE}}}


class CronPlace:
    """A place with one CronJob, `cron`."""

    def __init__(self, place: Place) -> None:
        self.place = place

    async def due(self, *, status: JsonObject | None = None, job: JsonObject | None = None, **spec: Any) -> None:
        """Make the CronJob, with a time that is due since the first of January unless its status says otherwise."""
        place = self.place
        template = {"metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}}, "spec": job or _JOB}
        made = {"schedule": _YEARLY, "suspend": True, "jobTemplate": template, **spec}
        body = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "cron"}, "spec": made}
        await place.client.create(CRON_JOBS, body, namespace=place.namespace)
        told = {"lastScheduleTime": f"{datetime.now(UTC).year - 1}-06-01T00:00:00Z", **(status or {})}
        await self._patch({"status": told}, subresource="status")
        await self._patch({"spec": {"suspend": False}})

    async def make_job(self, name: str) -> JsonObject:
        """A Job without an owner, as a reference to it."""
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": _JOB}
        await self.place.client.create(JOBS, body, namespace=self.place.namespace)
        made = await self.place.client.get_object(JOBS, name, namespace=self.place.namespace)
        named = {"name": name, "namespace": self.place.namespace, "uid": made["metadata"]["uid"]}
        return {"kind": "Job", "apiVersion": "batch/v1", **named}

    async def end_jobs(self, condition: str) -> None:
        """Have all Jobs of the CronJob end so."""
        for job in await self.jobs():
            body = {"spec": {"parallelism": 1}} if condition == "Complete" else {"spec": {"activeDeadlineSeconds": 1}}
            await self.place.client.patch(JOBS, job["metadata"]["name"], body, namespace=self.place.namespace)
        if condition == "Complete":
            await self._end_pods()

    async def _end_pods(self) -> None:
        async def made() -> bool:
            return bool(await self.listed(PODS))

        await self.place.until(made, "with pods")
        for pod in await self.listed(PODS):
            await self.place.client.patch(
                PODS,
                pod["metadata"]["name"],
                {"status": {"phase": "Succeeded"}},
                namespace=self.place.namespace,
                kind=PatchKind.STRATEGIC,
                subresource="status",
            )

    async def listed(self, resource: Resource) -> list[JsonObject]:
        """All there are in the namespace."""
        found: list[JsonObject] = (await self.place.client.request("GET", resource.path(self.place.namespace))).json()[
            "items"
        ]
        return found

    async def jobs(self) -> list[JsonObject]:
        """Those that the CronJob controls."""
        return [job for job in await self.listed(JOBS) if job["metadata"].get("ownerReferences")]

    async def until_status(self, what: str, holds: Callable[[JsonObject], bool]) -> JsonObject:
        """The status of the CronJob as soon as it is as wanted."""
        found: JsonObject = {}

        async def told() -> bool:
            found.clear()
            found.update((await self.place.look(CRON_JOBS, "cron") or {}).get("status") or {})
            return holds(found)

        await self.place.until(told, what)
        return found

    async def until_events(self, *reasons: str) -> list[list[str]]:
        """Type, reason and text of each event about the CronJob, as soon as there is one of each reason."""
        found: list[list[str]] = []

        async def told() -> bool:
            about = [one for one in await self.listed(EVENTS) if one["regarding"]["kind"] == "CronJob"]
            found[:] = sorted([one["type"], one["reason"], one["note"]] for one in about)
            return {one[1] for one in found} >= set(reasons)

        await self.place.until(told, f"told {reasons}")
        return found

    async def _patch(self, body: JsonObject, *, subresource: str = "") -> None:
        await self.place.client.patch(
            CRON_JOBS, "cron", body, namespace=self.place.namespace, subresource=subresource or None
        )


def plain(value: Any) -> Any:
    """Without what no two runs share: times, uids, versions and the minutes in names."""
    if isinstance(value, dict):
        shared = {key: entry for key, entry in value.items() if key not in ("resourceVersion", "uid", "namespace")}
        return {key: "time" if key in _TIMES else plain(entry) for key, entry in shared.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, str):
        return re.sub(
            r"\b20\d\d\b", "year", re.sub(r"cron-\d{8}", "cron-minute", re.sub(r"\w{3}, 01 Jan", "day", value))
        )
    return value


@case("a CronJob starts the Job of its template and enters it into its status", CRON_CASES)
async def _(place: Place) -> Any:
    cron = CronPlace(place)
    await cron.due(timeZone="Europe/Berlin")
    status = await cron.until_status("with an active Job", lambda found: bool(found.get("active")))
    events = await cron.until_events("SuccessfulCreate")
    (job,) = await cron.jobs()
    kept = {key: job["metadata"].get(key) for key in ("name", "labels", "annotations", "ownerReferences")}
    kept["labels"] = {key: text for key, text in kept["labels"].items() if "job-name" not in key and "uid" not in key}
    return plain([status, kept, events])


@case("a CronJob tells of a Job that completed", CRON_CASES)
async def _(place: Place) -> Any:
    cron = CronPlace(place)
    await cron.due()
    await cron.until_status("with an active Job", lambda found: bool(found.get("active")))
    await cron.end_jobs("Complete")
    status = await cron.until_status("with a success", lambda found: "lastSuccessfulTime" in found)
    return plain([status, await cron.until_events("SuccessfulCreate", "SawCompletedJob")])


@case("a CronJob tells of a Job that failed, and keeps none where its history is of none", CRON_CASES)
async def _(place: Place) -> Any:
    cron = CronPlace(place)
    await cron.due(failedJobsHistoryLimit=0)
    await cron.until_status("with an active Job", lambda found: bool(found.get("active")))
    await cron.end_jobs("Failed")
    status = await cron.until_status("without an active Job", lambda found: not found.get("active"))

    async def tidy() -> bool:
        return not await cron.jobs()

    await place.until(tidy, "without the failed Job")
    events = await cron.until_events("SuccessfulCreate", "SuccessfulDelete")
    # A real controller that looks again before it has heard of its own write also says that the Job went missing.
    return plain([status, [one for one in events if one[1] != "MissingJob"]])


@case("a CronJob that forbids a second Job waits for the first", CRON_CASES)
async def _(place: Place) -> Any:
    cron = CronPlace(place)
    first = await cron.make_job("first")
    await cron.due(concurrencyPolicy="Forbid", status={"active": [first]})
    events = await cron.until_events("JobAlreadyActive")
    return plain([events, len(await cron.jobs())])


@case("a CronJob that replaces deletes the Job that is active", CRON_CASES)
async def _(place: Place) -> Any:
    cron = CronPlace(place)
    first = await cron.make_job("first")
    await cron.due(concurrencyPolicy="Replace", status={"active": [first]})
    await place.gone(JOBS, "first")
    status = await cron.until_status(
        "with the new Job", lambda found: [one["name"] != "first" for one in found.get("active") or ()] == [True]
    )
    return plain([status, await cron.until_events("SuccessfulDelete", "SuccessfulCreate")])


@case("a CronJob that allows several has several", CRON_CASES)
async def _(place: Place) -> Any:
    cron = CronPlace(place)
    first = await cron.make_job("first")
    await cron.due(status={"active": [first]})
    return plain(await cron.until_status("with two", lambda found: len(found.get("active") or ()) == 2))


@case("a CronJob forgets an active Job that is gone", CRON_CASES)
async def _(place: Place) -> Any:
    cron = CronPlace(place)
    named = {"name": "gone", "namespace": place.namespace, "uid": "11111111-2222-3333-4444-555555555555"}
    gone = {"kind": "Job", "apiVersion": "batch/v1", **named}
    await cron.due(concurrencyPolicy="Forbid", status={"active": [gone]})
    await cron.until_status(
        "with a Job", lambda found: [one["name"] != "gone" for one in found.get("active") or ()] == [True]
    )
    return plain(await cron.until_events("MissingJob", "SuccessfulCreate"))


@case("a CronJob that missed very many times says so and starts one Job", CRON_CASES)
async def _(place: Place) -> Any:
    cron = CronPlace(place)
    await cron.due(schedule="0 * * * *")
    events = await cron.until_events("TooManyMissedTimes", "SuccessfulCreate")
    return plain([[one for one in events if one[0] == "Warning"], len(await cron.jobs())])


@case("what a deleted CronJob started goes with it", CRON_CASES)
async def _(place: Place) -> Any:
    cron = CronPlace(place)
    await cron.due()
    await cron.until_status("with an active Job", lambda found: bool(found.get("active")))
    await place.client.delete(CRON_JOBS, "cron", namespace=place.namespace)

    async def tidy() -> bool:
        return not await cron.jobs()

    await place.until(tidy, "without its Job")


@case("the pods of an orphaned Job lose its finalizer and stay", CRON_CASES)
async def _(place: Place) -> Any:
    cron = CronPlace(place)
    spec = {**_JOB, "parallelism": 2}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}
    await place.client.create(JOBS, job, namespace=place.namespace)

    async def made() -> bool:
        return len(await cron.listed(PODS)) == 2

    await place.until(made, "with two pods")
    await place.client.delete(JOBS, "job", namespace=place.namespace, propagation="Orphan")
    await place.gone(JOBS, "job")

    async def free() -> bool:
        return not any(pod["metadata"].get("finalizers") for pod in await cron.listed(PODS))

    await place.until(free, "with pods that nothing holds")
    left = await cron.listed(PODS)
    for pod in left:
        await place.client.delete(PODS, pod["metadata"]["name"], namespace=place.namespace)
    await place.gone(PODS, *(pod["metadata"]["name"] for pod in left))
    return [pod["metadata"].get("ownerReferences", "none") for pod in left]
