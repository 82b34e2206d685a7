# SPDX-License-Identifier: Apache-2.0
"""What an API server does in a second on one core: the embedded one, and a real one beside it when there are binaries.

The server is a process bound to one core, the client (`raw`) runs on another. `plain` is the embedded server without
TLS and in memory, `durable` the same with TLS and its data in SQLite, `real` a kube-apiserver with TLS on one core (its
etcd has the others). Each figure comes with what the server itself used of its core, since the machine may be shared:
`per_core_second` is the rate over the server's own CPU time. Goals: GET ≥ 12,000/s, PATCH of a 5 KiB status ≥ 4,000/s,
apply ≥ 1,500/s, ≥ 50,000 watch deliveries/s, a list of 10,000 Workloads ≤ 0.5 s, a CRD of 340 KB ≤ 0.2 s,
≤ 250 MiB with 50,000 Workloads.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import yaml

from devcluster.cluster import ADMIN_GROUP, ADMIN_USER, API_SERVER, Cluster
from devcluster.pki import Authority, new_key
from devcluster.processes.process import Process, ProcessSpec
from devcluster.providers.binaries import acquire
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from tests.bench.apiserver.raw import Address, Line, play, request
from tests.bench.figure import Better, FigureShape
from tests.support.embedded_process import embedded_cluster

_ROOT = Path(__file__).parents[3]
_KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_WORKLOADS = f"{_KUEUE}/namespaces/default/workloads"
_TICKS = os.sysconf("SC_CLK_TCK")
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_WATCHERS = 100
_SECONDS = 8.0
"""How long one figure may be taken."""
_FILLING = 45.0
"""How long a server may be filled; a real one beside its etcd on two cores is not full by then."""
_FANNED = 64
"""The objects that are written while a hundred watch: writers of one would meet, and be refused by a real server."""


def workload(name: str) -> dict[str, Any]:
    """A Workload such as a Job of one container has."""
    container: dict[str, Any] = {
        "name": "main",
        "image": "registry.example/team/train:v1",
        "args": ["--epochs=10", "--batch=32"],
    }
    container["resources"] = {"requests": {"cpu": "2", "memory": "4Gi"}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/job-uid": f"uid-of-{name}"}},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 4, "template": template}]},
    }


def conditions(count: int, *, characters: int, size: int = 3) -> list[dict[str, Any]]:
    """Conditions that differ from call to call."""
    found = []
    for type in ("QuotaReserved", "Admitted", "PodsReady", "Finished", "Evicted", "Preempted")[:size]:
        message = f"number {count} ".ljust(characters, "m")
        stamp = "2026-01-01T00:00:00Z"
        found.append(
            {"type": type, "status": "True", "reason": "Bench", "message": message, "lastTransitionTime": stamp}
        )
    return found


class Served:
    """A server that runs, with what it uses."""

    def __init__(self, address: Address, pid: int) -> None:
        self.address = address
        self.pid = pid
        cores = sorted(os.sched_getaffinity(0))
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(task), {cores[0]})

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def mebibytes(self) -> float:
        """What it holds of memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"process {self.pid} has no VmRSS")

    def ask(self, method: str, path: str, body: object = None, media: str = "application/json") -> bytes:
        """One request that must succeed."""
        text = b"" if body is None else json.dumps(body).encode()
        line = Line(self.address)  # a new one each time: a real server closes those that are idle
        status, answer = line.ask(request(method, path, text, media))
        line.close()
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:300]!r}")
        return answer

    def rate(self, requests: Iterator[bytes]) -> dict[str, float]:
        """Requests in a second of the clock, and of the server's core; of no more than a few seconds."""
        before = self.cpu()
        count, seconds = play(self.address, requests, seconds=_SECONDS)
        return {"per_second": round(count / seconds), "per_core_second": round(count / max(self.cpu() - before, 0.01))}


def install(server: Served) -> float:
    """Seconds from the CRD of Workloads to its first list."""
    crd = yaml.load((_ROOT / "crds" / "kueue.x-k8s.io_workloads.yaml").read_text(), Loader=yaml.CSafeLoader)
    crd["spec"].pop("conversion")  # it needs a webhook
    body = json.dumps(crd).encode()
    line = Line(server.address)
    begun = perf_counter()
    status, answer = line.ask(request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body))
    if status != 201:
        raise RuntimeError(f"{status}: {answer[:300]!r}")
    while line.ask(request("GET", f"{_KUEUE}/workloads?limit=1"))[0] != 200:
        sleep(0.005)
    seconds = perf_counter() - begun
    line.close()
    return seconds


def fan_out(server: Served, *, writes: int) -> dict[str, float]:
    """Deliveries in a second to a hundred watchers of one resource."""
    maps = "/api/v1/namespaces/default/configmaps"
    listed = json.loads(server.ask("GET", f"{maps}?limit=1"))
    begin = request("GET", f"{maps}?watch=true&resourceVersion={listed['metadata']['resourceVersion']}")
    lines = [Line(server.address) for _ in range(_WATCHERS)]
    for line in lines:
        line.socket.sendall(begin)
        line.socket.recv(1 << 16)
    counts = [0] * _WATCHERS
    marker = b'{"type":'

    def read(index: int) -> None:
        rest = b""
        with suppress(OSError):  # the bench ends before the watch does
            while counts[index] < writes:
                data = rest + lines[index].socket.recv(1 << 20)
                if data == rest:
                    return
                counts[index] += data.count(marker)
                last = data.rfind(marker)
                # The end may be the beginning of another one.
                rest = data[max(last + len(marker) if last >= 0 else 0, len(data) - len(marker) + 1) :]

    # One process reads for all: it would be what is measured, were it not that a hundred events come in one piece.
    for number in range(_FANNED):
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"fan-{number}"},
            "data": {"x": "y" * 500},
        }
        server.ask("POST", maps, body)
    patches = (
        request("PATCH", f"{maps}/fan-{number % _FANNED}", json.dumps({"data": {"n": str(number)}}).encode(), _MERGE)
        for number in range(writes - _FANNED)
    )
    readers = [threading.Thread(target=read, args=(index,)) for index in range(_WATCHERS)]
    before, begun = server.cpu(), perf_counter()
    for reader in readers:
        reader.start()
    try:
        play(server.address, patches, connections=8)
        for reader in readers:
            reader.join(timeout=_FILLING)
        seconds, used = perf_counter() - begun, server.cpu() - before
    finally:
        for line in lines:
            line.shut()
        for reader in readers:
            reader.join()
    server.ask("DELETE", maps)
    return {"per_second": round(sum(counts) / seconds), "per_core_second": round(sum(counts) / max(used, 0.01))}


def creates(first: int, last: int) -> Iterator[bytes]:
    """Workloads to be."""
    for number in range(first, last):
        yield request("POST", _WORKLOADS, json.dumps(workload(f"job-{number:06}")).encode())


def figures(server: Served, *, scale: float) -> dict[str, object]:
    """All figures of one server; `scale` 1.0 for the whole bench."""
    found: dict[str, object] = {"crd_install_seconds": round(install(server), 3)}
    listed, kept = max(500, int(10_000 * scale)), max(1_000, int(50_000 * scale))
    found["create"] = server.rate(creates(0, 500))
    names = [f"{_WORKLOADS}/job-{number:06}" for number in range(500)]
    gets = int(40_000 * scale)
    found["get"] = server.rate(request("GET", names[number % 500]) for number in range(gets))
    found["patch_5kib_status"] = server.rate(
        request(
            "PATCH",
            f"{names[number % 500]}/status",
            json.dumps({"status": {"conditions": conditions(number, characters=750, size=6)}}).encode(),
            _MERGE,
        )
        for number in range(int(10_000 * scale))
    )
    found["apply_status"] = server.rate(
        request(
            "PATCH",
            f"{names[number % 500]}/status?fieldManager=kueue-admission&force=true",
            json.dumps(
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta2",
                    "kind": "Workload",
                    "metadata": {"name": f"job-{number % 500:06}"},
                    "status": {"conditions": conditions(number, characters=60)},
                }
            ).encode(),
            _APPLY,
        )
        for number in range(int(5_000 * scale))
    )
    found["watch_deliveries"] = fan_out(server, writes=int(1_000 * scale))
    play(server.address, creates(500, listed), seconds=_FILLING)
    seconds = []
    for _ in range(3):
        begun = perf_counter()
        server.ask("GET", _WORKLOADS)
        seconds.append(perf_counter() - begun)
    found[f"list_of_{listed}_seconds"] = round(min(seconds), 3)
    filled, _ = play(server.address, creates(listed, kept), seconds=_FILLING)
    found["memory"] = {"workloads": listed + filled, "mebibytes": round(server.mebibytes())}
    return found


def plain(folder: Path, measure: Callable[[Served], dict[str, object]]) -> dict[str, object]:
    """The embedded server without TLS, in memory."""
    key = folder / "key"
    key.write_bytes(new_key())
    spec = ProcessSpec(
        name=API_SERVER,
        arguments=[sys.executable, "-m", "devcluster.apiserver", "--signing-key", str(key)],
        folder=_ROOT,
        log=folder / "apiserver.log",
    )

    async def run() -> dict[str, object]:
        process = Process(spec)
        await process.start()
        try:
            while not (text := spec.log.read_text()).startswith("http"):
                await asyncio.sleep(0.02)
            assert process.pid is not None
            return measure(Served(Address(text.split()[0]), process.pid))
        finally:
            await process.stop()

    return asyncio.run(run())


def with_tls(cluster: Cluster, folder: Path) -> Address:
    """How to reach a cluster as its administrator."""
    authority = Authority.load_or_create(
        folder if (folder / "ca.crt").exists() else folder / "pki", name="found, not made"
    )
    pair = authority.client(ADMIN_USER, groups=[ADMIN_GROUP]).write(folder, name="bench")
    context = ssl.create_default_context(cadata=cluster.ca.decode())
    context.load_cert_chain(*pair)
    return Address(cluster.server, context)


async def _measured(
    cluster: Cluster, folder: Path, measure: Callable[[Served], dict[str, object]]
) -> dict[str, object]:
    async with cluster:
        pid = cluster.component(API_SERVER).pid
        assert pid is not None
        return measure(Served(with_tls(cluster, folder), pid))


def durable(folder: Path, measure: Callable[[Served], dict[str, object]]) -> dict[str, object]:
    """The embedded server with TLS and SQLite."""
    with embedded_cluster(folder) as cluster:
        return asyncio.run(_measured(cluster, folder, measure))


def real(folder: Path, measure: Callable[[Served], dict[str, object]]) -> dict[str, object]:
    """A real API server."""

    async def run() -> dict[str, object]:
        async with BinariesProvider(folder=folder) as provider:
            spec = ClusterSpec(controllers=False, scheduler=False)
            cluster = await provider.create("bench", folder=folder / "bench", spec=spec)
            return await _measured(cluster, folder / "bench", measure)

    return asyncio.run(run())


FIGURES = (
    # The goals are those of the embedded server.
    FigureShape("[pd]*.get.per_second", "/s", 12_000, Better.HIGHER),
    FigureShape("[pd]*.patch_5kib_status.per_second", "/s", 4_000, Better.HIGHER),
    FigureShape("[pd]*.apply_status.per_second", "/s", 1_500, Better.HIGHER),
    FigureShape("[pd]*.watch_deliveries.per_second", "/s", 50_000, Better.HIGHER),
    FigureShape("[pd]*.list_of_*_seconds", "s", 0.5),
    FigureShape("[pd]*.crd_install_seconds", "s", 0.2),
    FigureShape("[pd]*.memory.mebibytes", "MiB", 250),
    FigureShape("*.memory.mebibytes", "MiB"),
    FigureShape("*_second", "/s", better=Better.HIGHER),
    FigureShape("*_seconds", "s"),
)


def main(*, scale: float = 1.0, servers: tuple[str, ...] = ("plain", "durable", "real")) -> dict[str, object]:
    """Every figure of every server."""
    runs = {"plain": plain, "durable": durable, "real": real}
    if acquire.find() is None:
        runs.pop("real")
    mine = sorted(os.sched_getaffinity(0))
    found: dict[str, object] = {}
    for name in servers:
        if name not in runs:
            continue

        def measure(server: Served) -> dict[str, object]:
            os.sched_setaffinity(0, set(mine[1:]) or set(mine))
            try:
                return figures(server, scale=scale)
            finally:
                os.sched_setaffinity(0, mine)

        with tempfile.TemporaryDirectory(prefix="mk-bench-") as folder:
            found[name] = runs[name](Path(folder), measure)
    return found


if __name__ == "__main__":
    chosen = tuple(sys.argv[2:]) or ("plain", "durable", "real")
    print(json.dumps(main(scale=float(sys.argv[1]) if len(sys.argv) > 1 else 1.0, servers=chosen), indent=1))
