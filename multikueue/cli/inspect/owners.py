# SPDX-License-Identifier: Apache-2.0
"""`mkctl owners`: pods of a hub that run outside the quota of the owner that they name.

Nothing is decided here and nothing is changed: the review is the manager's, of what the user may list.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import anyio
import orjson

from manager.cache.caches import Caches
from manager.cache.indexes import followed
from manager.namespaces import ManagedNamespaces
from manager.owners.owner_quota import workloads_of
from manager.owners.pod_review import RUNNING, PodReview, UncoveredPod
from multikueue.api.resource import NAMESPACES, PODS, WORKLOADS
from multikueue.cli.hub_configuration import manager_configuration
from multikueue.cli.hub_options import HubOptions, add_options, hub_options
from multikueue.cli.inspect.manifest_options import moment
from multikueue.cli.terminal import BAD_INPUT, print_message, show_json, show_wrapped
from multikueue.core.clock import SystemClock
from multikueue.core.errors import MultikueueError
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.cache.store import read_row
from multikueue.kube.errors import NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient

_FOUND: Final = 1


def main(arguments: Sequence[str]) -> int:
    """Run `mkctl owners`; returns the exit status."""
    options = _parser().parse_args(arguments)

    async def run() -> list[UncoveredPod]:
        return await uncovered(hub_options(options), namespace=options.namespace, now=moment(None))

    try:
        found = anyio.run(run)
    except MultikueueError as error:
        print_message(f"mkctl owners: {error}")
        return BAD_INPUT
    if options.output == "json":
        show_json([{"namespace": each.key.namespace, "pod": each.key.name, "reason": each.why} for each in found])
    else:
        show_wrapped(f"{each.key}: {each.why}" for each in found)
        if not found:
            show_wrapped(["No pod runs outside the quota of the owner that it names."])
    return _FOUND if found else 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="mkctl owners",
        description="Show pods that run outside the quota of the owner that they name: created before the webhook, or"
        " past it. Exits 1 if there are any.",
    )
    made.add_argument("-o", "--output", choices=("table", "json"), default="table", help="Format. Default: table.")
    add_options(made)
    return made


async def uncovered(options: HubOptions, *, namespace: str, now: datetime) -> list[UncoveredPod]:
    """The pods of a namespace, else of all. Raises `BadInput` and `KubeError`."""
    config = credentials.load(options.kubeconfig, context=options.context)
    async with KubeClient(config, user_agent="mkctl") as hub:
        configuration = await manager_configuration(hub, options)
        registry = JobRegistry.configured(configuration)
        caches = Caches(hub, followed(namespace=options.manager_namespace, jobs=registry), clock=SystemClock())
        scope = namespace or None
        kinds = [each.resource for each in registry if not each.traits.needs_managed_label]
        for resource in (*kinds, WORKLOADS, NAMESPACES):
            try:
                page = await hub.list_all(resource, namespace=scope if resource.namespaced else None)
            except NotFound:
                continue  # its CRD is not installed
            for raw in page.items:
                caches.view(resource).store.put(read_row(raw))
        managed = ManagedNamespaces(configuration, caches.view(NAMESPACES))
        review = PodReview(
            registry,
            caches,
            lambda resource, key: workloads_of(caches, resource, key),
            manage_unqueued=configuration.manage_jobs_without_queue_name,
        )
        for raw in (await hub.list_all(PODS, namespace=scope, field_selector=RUNNING)).items:
            pod = orjson.loads(raw)
            if managed.manages(pod["metadata"]["namespace"]):
                review.add(pod)
        return review.uncovered(now=now)
