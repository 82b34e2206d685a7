# SPDX-License-Identifier: Apache-2.0
"""The list of prices on an embedded API server: every write is stored, and its conditions are what they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio.to_thread
import pytest

from devcluster.cluster import Cluster
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from tests.bench.apiserver.rates import with_tls
from tests.bench.prices import conditions, meter
from tests.bench.prices.conditions import Asked, Served
from tests.bench.prices.hook import HookProcess, running_hook
from tests.bench.prices.kinds import JOB, KINDS, NAMESPACE, WORKLOAD, Body
from tests.bench.prices.meter import API_SERVER, Meter
from tests.bench.prices.watchers import watching
from tests.bench.prices.writes import PricedWrite, Verb, writes_of
from tests.support.embedded_process import embedded_cluster

CALLS = 6


@pytest.fixture
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is six calls, two for each object, and however little they take."""
    monkeypatch.setattr(meter, "_BATCH", CALLS)
    monkeypatch.setattr(meter, "_WARM_UP", 3)
    monkeypatch.setattr(meter, "_OBJECTS", 3)
    monkeypatch.setattr(meter, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(meter, "_QUIET_SECONDS", 0.1)


@contextmanager
def metering(cluster: Cluster, hook: HookProcess) -> Iterator[Meter]:
    """A meter, and what it writes in."""
    pid = cluster.component(API_SERVER).pid
    assert pid is not None
    address = with_tls(cluster, cluster.folder)
    with closing(Meter(address, {API_SERVER: pid}, calls=CALLS, reviews=hook.reviews)) as found:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        found.ask("POST", NAMESPACES.path(), body)
        for definition in conditions.definitions():
            found.ask("POST", CUSTOM_RESOURCE_DEFINITIONS.path(), definition)
        for kind in KINDS:
            found.wait_for(kind.collection)
        yield found


async def _play(folder: Path, play: Callable[[Meter, HookProcess, Cluster], None]) -> None:
    def run() -> None:
        with running_hook(folder) as hook, metering(cluster, hook) as found:
            play(found, hook, cluster)

    with embedded_cluster(folder / "server") as cluster:
        async with cluster:
            await anyio.to_thread.run_sync(run)


async def test_every_write_of_every_kind_is_stored(
    tmp_path: Path, few_calls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions: list[str] = []
    send = Meter.send

    def recorded(self: Meter, text: bytes) -> Body:
        answer = send(self, text)
        if text.startswith((b"POST", b"PUT", b"PATCH")):
            versions.append(answer["metadata"]["resourceVersion"])
        return answer

    def play(found: Meter, _hook: HookProcess, _cluster: Cluster) -> None:
        monkeypatch.setattr(Meter, "send", recorded)
        for kind in KINDS:
            for write in writes_of(kind):
                versions.clear()
                sample = found.measure(write)
                assert (sample.calls, sample.reviews) == (CALLS, 0), write.name
                assert len(set(versions)) == len(versions) >= CALLS, f"{write.name}: a write changed nothing"

    await _play(tmp_path, play)


async def test_webhooks_are_asked_once_for_a_write_unless_it_is_excluded(tmp_path: Path, few_calls: None) -> None:
    asked = {}

    def play(found: Meter, hook: HookProcess, _cluster: Cluster) -> None:
        for each in (*Asked, Asked.NONE):
            with conditions.asking(found, hook, each):
                for write in (PricedWrite(JOB, Verb.MERGE), PricedWrite(WORKLOAD, Verb.APPLY, status=True)):
                    asked[each, write.name] = found.measure(write).reviews

    await _play(tmp_path, play)
    assert {count for (each, _), count in asked.items() if each in (Asked.NONE, Asked.EXCLUDED)} == {0}
    assert {count for (each, _), count in asked.items() if each not in (Asked.NONE, Asked.EXCLUDED)} == {CALLS}
    assert len(asked) == 2 * len(Asked)


async def test_writes_are_measured_with_watchers_and_with_each_set_of_versions(tmp_path: Path, few_calls: None) -> None:
    served = {}

    def play(found: Meter, hook: HookProcess, cluster: Cluster) -> None:
        write = PricedWrite(WORKLOAD, Verb.APPLY, status=True)
        version = found.ask("GET", f"{WORKLOAD.collection}?limit=1")["metadata"]["resourceVersion"]
        with watching(with_tls(cluster, cluster.folder), WORKLOAD.collection, version=version, watchers=5):
            assert found.measure(write).calls == CALLS
        with pytest.raises(RuntimeError, match="the server refused a watch"):
            with watching(with_tls(cluster, cluster.folder), f"{WORKLOAD.collection}s", version=version, watchers=1):
                pytest.fail("it does not begin")
        old = WORKLOAD.resource.at("v1beta1").path(NAMESPACE)
        for each in (*Served, Served.ONE):
            conditions.serve(found, hook, each)
            assert found.measure(write).calls == CALLS
            served[each] = found.status_of("GET", old)

    await _play(tmp_path, play)
    assert served == {Served.ONE: 404, Served.TWO: 200, Served.CONVERTED: 200}
