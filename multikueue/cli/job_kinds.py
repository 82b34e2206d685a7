# SPDX-License-Identifier: Apache-2.0
"""Kinds of jobs as users name them on the command line, and as owners of Workloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from multikueue.api.configuration import Configuration
from multikueue.api.objects import JsonObject, controller_of
from multikueue.cli.cluster.agent_kinds import AgentKinds
from multikueue.cli.hub_configuration import manager_configuration
from multikueue.cli.hub_options import HubOptions
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import JobRegistry, known_integrations
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest.client import KubeClient


def served_by(configuration: Configuration) -> tuple[JobIntegration, ...]:
    """The kinds that a hub with that Configuration serves. Raises `BadInput`."""
    return JobRegistry.configured(configuration).followed


async def served_kinds(hub: KubeClient, options: HubOptions) -> tuple[JobIntegration, ...]:
    """The kinds that the hub serves; all that are shipped if its Configuration may not be read.

    Raises `BadInput` and `KubeError`.
    """
    try:
        return served_by(await manager_configuration(hub, options))
    except Forbidden:
        return tuple(known_integrations().values())


async def agent_kinds(hub: KubeClient, options: HubOptions, *, frameworks: str, external: str) -> AgentKinds:
    """The kinds of these two flags, with what the manager's Configuration says of them, if it may be read.

    Raises `BadInput` and `KubeError`.
    """
    configuration = None
    if frameworks or external:
        with suppress(Forbidden):
            configuration = await manager_configuration(hub, options)
    return AgentKinds.chosen(frameworks=frameworks, external=external, configuration=configuration)


def kind_named(name: str, kinds: Sequence[JobIntegration]) -> JobIntegration:
    """The kind of that name: its kind or plural, also with its group. Raises `BadInput`, which names all of them."""
    for each in kinds:
        resource = each.resource
        names = [resource.kind.lower(), resource.plural]
        if name in (*names, *(f"{text}.{resource.group}" for text in names)):
            return each
    known = ", ".join(sorted(each.resource.kind.lower() for each in kinds))
    raise BadInput(f"{excerpt(name)} is no kind of job that the hub serves; it serves workload, {known}")


def owner_of(workload: JsonObject) -> JsonObject | None:
    """The owner reference of the job that a Workload is of; for a group of objects the first of them."""
    owners: list[JsonObject] = workload["metadata"].get("ownerReferences") or []
    return controller_of(workload) or next(iter(owners), None)


def kind_of_owner(owner: Mapping[str, str], kinds: Iterable[JobIntegration]) -> JobIntegration | None:
    """The kind of an owner; None if it is none of these."""
    group = str(owner.get("apiVersion") or "").rpartition("/")[0]
    return next(
        (each for each in kinds if (each.resource.group, each.resource.kind) == (group, owner.get("kind"))), None
    )


def is_owned(workload: JsonObject, integration: JobIntegration, job: Key) -> bool:
    """Whether the Workload is that of the job, or of a group that it is in."""
    metadata: JsonObject = workload["metadata"]
    return metadata["namespace"] == job.namespace and any(
        owner.get("name") == job.name and kind_of_owner(owner, (integration,)) is not None
        for owner in metadata.get("ownerReferences") or ()
    )
