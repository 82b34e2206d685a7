# SPDX-License-Identifier: Apache-2.0
"""What a user sees of jobs on nodes with labels: what is shown of others, and where their pods are.

Pods of a job that differ in nothing but their names are counted, since those are made up.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import orjson

from multikueue.api.objects import controller_of
from multikueue.api.resource import PODS, TOPOLOGIES, Resource
from multikueue.kube.rest.client import KubeClient
from tests.comparison.shown import comparable, leaves, lines

Object = dict[str, Any]

_ROLE_HASH: Final = "kueue.x-k8s.io/role-hash"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_SHOWN: Final = "kueue.x-k8s.io/"
_TIMES: Final = "accumulatedPastExecutionTimeSeconds"


async def placed(client: KubeClient, namespace: str, *, jobs: tuple[Resource, ...]) -> list[str]:
    """Everything of that namespace but events, with jobs of these kinds that run, and all Topologies."""
    found = await lines(client, namespace, jobs=jobs, run_by_controllers=True)
    # It differs from run to run.
    shown = [line for line in found if _TIMES not in line]
    for obj in await _objects(client, TOPOLOGIES, None):
        deleted = "deletionTimestamp" in obj["metadata"]
        shown.append(f"Topology {obj['metadata']['name']}: {obj['metadata'].get('finalizers')}, deleted {deleted}")
    return [*shown, *pod_lines(await _objects(client, PODS, namespace))]


def pod_lines(pods: list[Object]) -> list[str]:
    """How many pods of each job are alike."""
    counted = Counter(line for pod in pods for line in _pod(pod))
    return sorted(comparable(f"{line} ({count} pods)") for line, count in counted.items())


def _pod(pod: Object) -> list[str]:
    metadata, spec = pod["metadata"], pod["spec"]
    name = _of(pod)
    gates = sorted(each["name"] for each in spec.get("schedulingGates") or ())
    selector = dict(sorted((spec.get("nodeSelector") or {}).items()))
    phase = (pod.get("status") or {}).get("phase")
    gone = ", deleted" if "deletionTimestamp" in metadata else ""
    found = [f"{name}: {phase}{gone} on {spec.get('nodeName')}, gates {gates}, node selector {selector}"]
    found += [f"{name}: finalizers {path}={value}" for path, value in leaves(metadata.get("finalizers") or [])]
    for field in ("labels", "annotations"):
        values = sorted((metadata.get(field) or {}).items())
        # Kueue 0.17.0 has another hash.
        shown = [(key, value) for key, value in values if key.startswith(_SHOWN) and key != _ROLE_HASH]
        found += [f"{name}: {field} {key}={value}" for key, value in shown]
    return found


def _of(pod: Object) -> str:
    owner = controller_of(pod)
    if owner is None:
        return f"Pod {pod['metadata']['name']}"
    index = (pod["metadata"].get("labels") or {}).get(_INDEX)
    return f"pod of {owner['kind']} {owner['name']}" + ("" if index is None else f" with index {index}")


async def _objects(client: KubeClient, resource: Resource, namespace: str | None) -> list[Object]:
    return [orjson.loads(raw) for raw in (await client.list_all(resource, namespace=namespace)).items]
