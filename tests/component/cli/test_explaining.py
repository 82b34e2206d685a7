# SPDX-License-Identifier: Apache-2.0
"""`mkctl explain` and `mkctl timeline` against a federation: why a Job waits, and how one was failed over."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio.to_thread
import orjson
import pytest

from devcluster import manifests
from devcluster.federation.federation import Federation
from devcluster.federation.spec import FederationSpec, several_workers
from multikueue.api.resource import JOBS
from multikueue.cli.cluster.lifecycle import set_availability
from multikueue.cli.inspect import explain, timeline
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import MakeFederation
from tests.support.federations import job, wait_until
from tests.support.managers import make_namespace, make_queue, workload_of
from tests.support.workers import make_check

Ask = Callable[..., Any]


@pytest.fixture
async def federation(make_federation: MakeFederation) -> Federation:
    """Three workers with a short lease and lost timeout, and a queue that uses all of them."""
    made = await make_federation(
        FederationSpec(
            name="explained",
            workers=several_workers(3, nodes=1),
            configuration={"multiKueue": {"workerLostTimeout": "2s"}},
            agent_arguments=("--lease-seconds", "6", "--renew-seconds", "1"),
        )
    )
    async with made.hub.client() as hub:
        await make_check(hub, "workers", tuple(made.workers))
        await make_queue(hub, "jobs", namespace="team-a", cpu="40", checks=("workers",), flavor="spot")
    for name in ("worker-1", "worker-3"):
        async with made.workers[name].client() as worker:
            await make_namespace(worker, "team-a")
    return made


@pytest.fixture
def ask(federation: Federation, capsysbinary: pytest.CaptureFixture[bytes]) -> Ask:
    """Runs one of the commands beside the test, as JSON."""
    hub = ["--kubeconfig", str(federation.hub.kubeconfig), "-o", "json"]

    async def run(main: Callable[[list[str]], int], *arguments: str) -> Any:
        capsysbinary.readouterr()
        code = await anyio.to_thread.run_sync(partial(main, [*arguments, *hub]))
        out, err = capsysbinary.readouterr()
        assert code == 0, err.decode()
        return orjson.loads(out)

    return run


async def submit(hub: KubeClient, name: str, *, cpu: str) -> None:
    body = job(name, cpu=cpu, run_for="600s")
    body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    await manifests.create_all(hub, [body])


async def runs_on(hub: KubeClient, name: str) -> str | None:
    """The cluster that runs the Job, once its pods are ready."""
    found = await workload_of(hub, name, namespace="team-a")
    status = (found or {}).get("status") or {}
    ready = any((c["type"], c["status"]) == ("PodsReady", "True") for c in status.get("conditions") or ())
    return status.get("clusterName") if ready else None


async def test_a_waiting_job_is_explained_and_a_failover_has_a_timeline(federation: Federation, ask: Ask) -> None:
    async with federation.hub.client() as hub:
        await set_availability(hub, "worker-1", {"cordoned": True})
        await submit(hub, "filler", cpu="6")

        async def filled() -> bool:
            return await runs_on(hub, "filler") == "worker-3"

        await wait_until(filled, within=60, what="the one cluster that can run it does")
        await submit(hub, "waiting", cpu="5")

        async def told() -> bool:
            found = await workload_of(hub, "waiting", namespace="team-a")
            checks = ((found or {}).get("status") or {}).get("admissionChecks") or [{}]
            # Not before the report that tells what of worker-3 is used now.
            return "worker-3: insufficient free capacity" in checks[0].get("message", "")

        await wait_until(told, within=60, what="the check says why it waits")
        found = await ask(explain.main, "job", "team-a/waiting", "--config", str(federation.folder / "manager.yaml"))
        reasons = {each["cluster"]: each["reason"] for each in found["dispatch"]["clusters"]}
        assert reasons["worker-1"] == "is cordoned and takes no new work"
        assert reasons["worker-2"] == 'no namespace "team-a"'
        assert "insufficient free capacity: short 3 cpu" in reasons["worker-3"]
        message = found["admissionChecks"][0]["message"]
        assert message == (
            "Waiting for a worker cluster: worker-1: is cordoned and takes no new work;"
            ' worker-2: no namespace "team-a"; worker-3: insufficient free capacity: short 3 cpu'
        )
        full = found["dispatch"]["clusters"][2]
        assert full["short"] == [{"resource": "cpu", "amount": "3", "flavor": "spot", "onOneNode": False}]
        assert set(full["score"]["parts"]) == {"freeCapacity", "preferred", "shortQueue", "room"}
        assert (found["queue"]["state"], found["queue"]["clusterQueue"]) == ("Reserved", "jobs")

        await submit(hub, "much", cpu="50")

        async def queued() -> bool:
            return await workload_of(hub, "much", namespace="team-a") is not None

        await wait_until(queued, within=60, what="the Workload of a Job that is too large for the queue")
        found = await ask(explain.main, "job/team-a/much")
        assert (found["queue"]["position"], found["queue"]["podSets"][0]["flavors"][0]["flavor"]) == (0, "spot")
        assert found["queue"]["podSets"][0]["flavors"][0]["resources"][0]["short"] == "21"
        await hub.delete(JOBS, "waiting", namespace="team-a", propagation="Background")

        await set_availability(hub, "worker-1", {"cordoned": False})
        await federation.agents["worker-3"].kill()

        async def moved() -> bool:
            return await runs_on(hub, "filler") == "worker-1"

        await wait_until(moved, within=90, what="the work of a lost cluster runs on another")
        workers = [f"--worker={name}={cluster.kubeconfig}" for name, cluster in federation.workers.items()]
        found = await ask(timeline.main, "job/team-a/filler", *workers)
    assert (found["epoch"], found["clusterName"], found["unheard"]) == (2, "worker-1", [])
    assert found["evictions"] == [{"reason": "AdmissionCheck", "count": 1}]
    lines = [(each["cluster"], each["what"], each["why"]) for each in found["entries"]]
    seconds = [each["time"][:19] for each in found["entries"]]
    assert seconds == sorted(seconds)

    def place(cluster: str, what: str, why: str = "") -> int:
        found = [number for number, line in enumerate(lines) if line[:2] == (cluster, what) and why in line[2]]
        assert found, f"{cluster}: {what} ({why}) is not among {lines}"
        return found[-1]

    order = [
        place("hub", "Workload created"),
        place("hub", "Workload MultiKueue", 'admitted on "worker-3"'),
        place("worker-3", "the cluster is not available", "ClientConnectionFailed"),
        place("hub", "Workload MultiKueue", 'Admitting remote lost: cluster "worker-3" is not available since'),
        place("hub", "Workload EvictedDueToAdmissionCheck"),
        place("hub", "Workload MultiKueue", 'admitted on "worker-1"'),
        place("worker-1", "Job created", "epoch 2"),
    ]
    assert order == sorted(order), lines
    assert place("hub", "worker-3 is avoided until here") > order[0]
    assert place("worker-3", "Job created", "epoch 1") < order[2]
