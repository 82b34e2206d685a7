# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bench.prices`: what a write costs an API server, by kind, verb, webhook, version and watcher.

The embedded API server (with TLS and SQLite) or, with `--binaries`, a real one and its etcd. What is measured is CPU
time of the server's processes and not the time of the clock, so that other work on the machine disturbs little; writes
go out one after the other, in JSON. First every verb of every kind, without webhooks, watchers and other versions; then
a few writes under each condition.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from devcluster.cluster import API_SERVER, Cluster
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from tests.bench.apiserver.rates import with_tls
from tests.bench.apiserver.raw import Address
from tests.bench.figure import FigureShape
from tests.bench.prices import batches, conditions
from tests.bench.prices.conditions import Asked, Served
from tests.bench.prices.hook import HookProcess, running_hook
from tests.bench.prices.kinds import ASSIGNMENT, CONFIG_MAP, JOB, KINDS, NAMESPACE, WORKLOAD
from tests.bench.prices.meter import Meter, Sample
from tests.bench.prices.price import Condition, Price, price_of
from tests.bench.prices.table import tables
from tests.bench.prices.watchers import watching
from tests.bench.prices.writes import PricedWrite, Verb, writes_of
from tests.support.embedded_process import embedded_cluster

_HOOK: Final = "webhook"
_WORKLOAD_APPLY: Final = PricedWrite(WORKLOAD, Verb.APPLY, status=True)
_ASSIGNMENT_STATUS: Final = PricedWrite(ASSIGNMENT, Verb.JSON, status=True)
_ASKED: Final = (
    PricedWrite(WORKLOAD, Verb.CREATE),
    _WORKLOAD_APPLY,
    PricedWrite(JOB, Verb.CREATE),
    PricedWrite(JOB, Verb.MERGE),
    _ASSIGNMENT_STATUS,
)
_CONVERTED: Final = (
    PricedWrite(WORKLOAD, Verb.CREATE),
    PricedWrite(WORKLOAD, Verb.MERGE),
    _WORKLOAD_APPLY,
    PricedWrite(WORKLOAD, Verb.DELETE),
)
_WATCHED: Final = (
    _WORKLOAD_APPLY,
    PricedWrite(JOB, Verb.MERGE, status=True),
    _ASSIGNMENT_STATUS,
    PricedWrite(CONFIG_MAP, Verb.MERGE),
)
_WATCHERS: Final = (0, 1, 5)

FIGURES: Final = (FigureShape("prices.*.apiserver_ms", "ms"), FigureShape("prices.*.etcd_ms", "ms"))


def main(arguments: list[str] | None = None) -> dict[str, object]:
    """The figures."""
    options = _options(arguments or [])
    with tempfile.TemporaryDirectory(prefix="mk-prices-") as folder:
        load = os.getloadavg()[0]
        with running_hook(Path(folder)) as hook:
            run = _real if options.binaries else _embedded
            idle, prices = asyncio.run(run(Path(folder), hook, options))
    figures: dict[str, object] = {
        "server": "real" if options.binaries else "embedded",
        "load_before_and_after": [round(load, 1), round(os.getloadavg()[0], 1)],
        "idle_ms_per_second": {name: round(1000 * seconds, 1) for name, seconds in idle.items()},
        "prices": {price.name: _figures(price) for price in prices},
    }
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return figures


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.prices", description="what a write costs")
    parser.add_argument("--binaries", action="store_true", help="a real API server instead of the embedded one")
    parser.add_argument("--calls", type=int, default=100, help="calls of a round, at least (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the cheapest is printed (%(default)s)")
    parser.add_argument("--part", action="append", choices=_PARTS, help="only this part; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    return parser.parse_args(arguments)


async def _embedded(
    folder: Path, hook: HookProcess, options: argparse.Namespace
) -> tuple[dict[str, float], list[Price]]:
    with embedded_cluster(folder / "server") as cluster:
        return await _measured(cluster, {}, hook, options)


async def _real(folder: Path, hook: HookProcess, options: argparse.Namespace) -> tuple[dict[str, float], list[Price]]:
    async with BinariesProvider(folder=folder) as provider:
        spec = ClusterSpec(controllers=False, scheduler=False)
        cluster = await provider.create("server", folder=folder / "server", spec=spec)
        shared = {part.name: part.pid for part in provider.shared if part.pid is not None}
        return await _measured(cluster, shared, hook, options)


async def _measured(
    cluster: Cluster, shared: dict[str, int], hook: HookProcess, options: argparse.Namespace
) -> tuple[dict[str, float], list[Price]]:
    async with cluster:
        pid = cluster.component(API_SERVER).pid
        assert pid is not None
        address = with_tls(cluster, cluster.folder)
        processes = {API_SERVER: pid, **shared, _HOOK: hook.pid}
        with closing(Meter(address, processes, calls=options.calls, reviews=hook.reviews)) as meter:
            _prepare(meter)
            meter.rest()
            prices: list[Price] = []
            samples: dict[tuple[PricedWrite, Condition], list[Sample]] = {}
            # A round measures everything, since the machine may be slower in one minute than in the next.
            for number in range(options.rounds):
                for part in options.part or _PARTS:
                    for write, under in _PARTS[part](meter, address, hook):
                        sample = meter.measure(write)
                        samples.setdefault((write, Condition(part=part, under=under)), []).append(sample)
                prices = [price_of(write, condition, found) for (write, condition), found in samples.items()]
                print(f"round {number + 1} of {options.rounds}\n\n{tables(prices)}\n", file=sys.stderr, flush=True)
            return meter.idle, prices


def _prepare(meter: Meter) -> None:
    meter.ask("POST", NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for definition in (*conditions.definitions(), batches.definition()):
        meter.ask("POST", CUSTOM_RESOURCE_DEFINITIONS.path(), definition)
    for kind in KINDS:
        meter.wait_for(kind.collection)
    meter.wait_for(batches.BATCHES.path(NAMESPACE))


def _verbs(meter: Meter, _address: Address, _hook: HookProcess) -> Iterator[tuple[PricedWrite, str]]:
    for kind in KINDS:
        for write in writes_of(kind):
            yield write, ""


def _webhooks(meter: Meter, _address: Address, hook: HookProcess) -> Iterator[tuple[PricedWrite, str]]:
    for asked in Asked:
        with conditions.asking(meter, hook, asked):
            for write in _ASKED:
                yield write, asked


def _watched(meter: Meter, address: Address, _hook: HookProcess) -> Iterator[tuple[PricedWrite, str]]:
    for write in _WATCHED:
        for watchers in _WATCHERS:
            version = meter.ask("GET", f"{write.kind.collection}?limit=1")["metadata"]["resourceVersion"]
            with watching(address, write.kind.collection, version=version, watchers=watchers):
                yield write, f"{watchers} watching"


def _batches(_meter: Meter, _address: Address, _hook: HookProcess) -> Iterator[tuple[PricedWrite, str]]:
    for size in batches.SIZES:
        for write in batches.writes(size):
            yield write, f"batch of {size}"


def _versions(meter: Meter, _address: Address, hook: HookProcess) -> Iterator[tuple[PricedWrite, str]]:
    for served in Served:
        conditions.serve(meter, hook, served)
        for write in _CONVERTED:
            yield write, served
    conditions.serve(meter, hook, Served.ONE)


def _figures(price: Price) -> dict[str, float]:
    return {
        **{f"{name}_ms": round(spent, 3) for name, spent in price.cpu.items()},
        "median_ms": round(price.median, 3),
        "highest_ms": round(price.highest, 3),
        "wall_ms": round(price.wall, 2),
        "reviews": round(price.reviews, 2),
        "calls": price.calls,
    }


_PARTS: Final[Mapping[str, Callable[[Meter, Address, HookProcess], Iterator[tuple[PricedWrite, str]]]]] = {
    "verbs": _verbs,
    "webhooks": _webhooks,
    "watchers": _watched,
    "batches": _batches,
    "versions": _versions,
}
"""Each yields what to measure, while its condition holds. The last one leaves a definition with one version."""

if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=2))
