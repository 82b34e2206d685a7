# SPDX-License-Identifier: Apache-2.0
"""Health of a local federation for `mkctl status`: health checks, agent leases, queues and workloads.

Owns what counts as down. `examine` reads and `judge` decides; a hub that cannot be read is reported as a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from multikueue.cli.conditions import condition_of, has_condition
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.printable import excerpt
from multikueue.core.timestamps import parse_time

if TYPE_CHECKING:
    from devcluster.federation.state import FederationState
    from multikueue.api.meta import JsonObject

_ASK_SECONDS: Final = 10.0
_PHASES: Final = ("waiting for quota", "waiting for admission checks", "admitted", "finished", "inactive")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContact:
    """A worker cluster as seen by the hub; `contact_age` in seconds, None for a push cluster."""

    name: str
    active: bool
    reason: str
    message: str
    contact_age: float | None
    contact_limit: int
    workloads: int

    @property
    def problem(self) -> str:
        """Why the worker is down; empty if it is not."""
        if not self.active:
            return f"{self.reason or 'NotActive'}: {self.message or 'the manager has not connected to it yet'}"
        if self.contact_age is not None and self.contact_age > self.contact_limit:
            return f"its agent was last in contact {self.contact_age:.0f} s ago, expected every {self.contact_limit} s"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHealth:
    """A ClusterQueue and its workloads."""

    name: str
    active: bool
    message: str
    pending: int
    admitted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationHealth:
    """The health of a federation as seen by its hub."""

    workers: Sequence[WorkerContact] = ()
    queues: Sequence[QueueHealth] = ()
    workloads: Mapping[str, int] = field(default_factory=dict)
    checks: Sequence[str] = ()
    """The AdmissionChecks of queues that are not active: one line each, with the controller and the next step."""
    unresponsive: Sequence[str] = ()
    """The health URLs that did not answer."""
    error: str = ""
    """Why the hub could not be read; empty if it could."""

    @property
    def problems(self) -> list[str]:
        """Everything that is down except processes."""
        found = [f"the hub cannot be reached: {self.error}"] if self.error else []
        found += [f"worker {each.name}: {each.problem}" for each in self.workers if each.problem]
        return [*found, *self.checks]


async def examine(found: FederationState, *, now: datetime) -> FederationHealth:
    """Check the processes and read the hub; takes a few seconds at most."""
    import anyio

    unresponsive = await _unresponsive([each.health for each in found.components if each.health and each.running])
    try:
        with anyio.fail_after(_ASK_SECONDS):
            clusters, leases, queues, workloads, checks = await _lists(found.cluster("hub").kubeconfig)
    except TimeoutError:
        return FederationHealth(unresponsive=unresponsive, error=f"no answer within {_ASK_SECONDS:.0f} s")
    except (MultikueueError, OSError) as error:
        return FederationHealth(unresponsive=unresponsive, error=str(error))
    return judge(clusters, leases, queues, workloads, checks=checks, unresponsive=unresponsive, now=now)


def judge(
    clusters: Sequence[JsonObject],
    leases: Sequence[JsonObject],
    queues: Sequence[JsonObject],
    workloads: Sequence[JsonObject],
    *,
    checks: Sequence[JsonObject] = (),
    unresponsive: Sequence[str] = (),
    now: datetime,
) -> FederationHealth:
    """The health from these objects of the hub."""
    from multikueue.api.constants import MAILBOX_OBJECT_NAME
    from multikueue.api.remoteassignment import mailbox_namespace

    by_mailbox = {
        lease["metadata"]["namespace"]: lease for lease in leases if lease["metadata"]["name"] == MAILBOX_OBJECT_NAME
    }
    phases = Counter(_phase(workload) for workload in workloads)
    running = Counter(
        str((workload.get("status") or {}).get("clusterName") or "")
        for workload in workloads
        if _phase(workload) != "finished"
    )
    return FederationHealth(
        workers=[
            _contact(each, by_mailbox.get(mailbox_namespace(each["metadata"]["name"])), running=running, now=now)
            for each in sorted(clusters, key=_name)
        ],
        queues=[_queue(each) for each in sorted(queues, key=_name)],
        workloads={phase: phases[phase] for phase in _PHASES if phases[phase]},
        checks=tuple(_inactive_checks(queues, checks)),
        unresponsive=tuple(unresponsive),
    )


def _contact(
    cluster: JsonObject, lease: JsonObject | None, *, running: Mapping[str, int], now: datetime
) -> WorkerContact:
    name = _name(cluster)
    active = condition_of(cluster, "Active")
    spec: JsonObject = (lease or {}).get("spec") or {}
    age: float | None = None
    if spec.get("renewTime"):
        try:
            age = max(0.0, (now - parse_time(spec["renewTime"])).total_seconds())
        except BadInput:  # the agent is not trusted: an invalid time counts as no contact
            age = float("inf")
    limit = spec.get("leaseDurationSeconds")
    return WorkerContact(
        name=name,
        active=active.get("status") == "True",
        reason=str(active.get("reason") or ""),
        message=str(active.get("message") or ""),
        contact_age=age,
        contact_limit=limit if isinstance(limit, int) and limit > 0 else 40,
        workloads=running.get(name, 0),
    )


def _queue(queue: JsonObject) -> QueueHealth:
    active, status = condition_of(queue, "Active"), queue.get("status") or {}
    return QueueHealth(
        name=_name(queue),
        active=active.get("status") == "True",
        message="" if active.get("status") == "True" else f"{active.get('reason', '')}: {active.get('message', '')}",
        pending=int(status.get("pendingWorkloads") or 0),
        admitted=int(status.get("admittedWorkloads") or 0),
    )


def _inactive_checks(queues: Sequence[JsonObject], checks: Sequence[JsonObject]) -> Iterator[str]:
    """A line for each AdmissionCheck that a queue names and that is not active."""
    from multikueue.engine.decode.check_health import check_health

    strategies = [(queue.get("spec") or {}).get("admissionChecksStrategy") or {} for queue in queues]
    used = {entry["name"] for strategy in strategies for entry in strategy.get("admissionChecks") or ()}
    for check in sorted(checks, key=_name):
        if _name(check) in used:
            line = check_health(check).line
            if line:
                yield line


def _phase(workload: JsonObject) -> str:
    if has_condition(workload, "Finished"):
        return "finished"
    if (workload.get("spec") or {}).get("active") is False:
        return "inactive"
    if has_condition(workload, "Admitted"):
        return "admitted"
    if has_condition(workload, "QuotaReserved"):
        return "waiting for admission checks"
    return "waiting for quota"


def _name(obj: JsonObject) -> str:
    return str(obj["metadata"]["name"])


async def _unresponsive(urls: Sequence[str]) -> list[str]:
    from devcluster import probes
    from devcluster.together import together

    answers: dict[str, bool] = {}

    async def ask(url: str) -> None:
        answers[url] = await probes.answers_ok(url)

    await together(*(ask(url) for url in urls))
    return [url for url in urls if not answers[url]]


async def _lists(kubeconfig: str) -> list[list[JsonObject]]:
    import orjson

    from multikueue.api.resource import ADMISSION_CHECKS, CLUSTER_QUEUES, LEASES, MULTIKUEUE_CLUSTERS, WORKLOADS
    from multikueue.kube.errors import NotFound
    from multikueue.kube.rest import credentials
    from multikueue.kube.rest.client import KubeClient

    found: list[list[JsonObject]] = []
    async with KubeClient(credentials.load(kubeconfig), user_agent="mkctl") as hub:
        for resource in (MULTIKUEUE_CLUSTERS, LEASES, CLUSTER_QUEUES, WORKLOADS, ADMISSION_CHECKS):
            try:
                page = await hub.list_all(resource)
            except NotFound as error:
                raise MultikueueError(f"it does not serve {excerpt(resource.qualified)}: {error}") from error
            found.append([orjson.loads(raw) for raw in page.items])
    return found
