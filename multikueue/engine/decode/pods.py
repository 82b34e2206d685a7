# SPDX-License-Identifier: Apache-2.0
"""Pod templates as shapes.

Owns which parts of a pod template matter for admission. Equal shapes become one object, found by its canonical text,
which is also its fingerprint (`docs/spec/engine.md §1.13`).
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import Final, cast

from multikueue.core.errors import BadInput
from multikueue.core.selectors import NodeSelectorTerm
from multikueue.engine.decode import fields
from multikueue.engine.decode.fields import Json
from multikueue.engine.devices.claims import PodClaim
from multikueue.engine.workloads import ContainerRequests, PodShape, TopologyRequest

_CONTAINER_FIELDS: Final = ("name", "resources", "ports", "restartPolicy")
_POD_FIELDS: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
    "resources",
)


class Shapes:
    """Makes equal pod shapes one object; the least recently used are dropped, which only costs memory."""

    __slots__ = ("_known", "_limit")

    def __init__(self, limit: int = 4096) -> None:
        self._known: OrderedDict[str, PodShape] = OrderedDict()
        self._limit = limit

    def of(self, spec: Json) -> PodShape:
        """The shape of a pod spec. Raises `BadInput`."""
        text = json.dumps(_relevant(spec), sort_keys=True, separators=(",", ":"), default=str)
        shape = self._known.get(text)
        if shape is None:
            shape = self._known[text] = _shape(spec, hashlib.sha256(text.encode()).hexdigest()[:16])
            if len(self._known) > self._limit:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(text)
        return shape


def topology_request(source: Json, name: str) -> TopologyRequest | None:
    """`topologyRequest` of a pod set."""
    value = fields.mapping(source, name)
    if not value:
        return None
    return TopologyRequest(
        group=fields.text(value, "podSetGroupName"),
        required=fields.text(value, "required"),
        preferred=fields.text(value, "preferred"),
        unconstrained=value.get("unconstrained") is True,
        slice_required=fields.text(value, "podSetSliceRequiredTopology"),
        slice_size=fields.whole(value, "podSetSliceSize", 0),
        slices=tuple(
            (fields.text(item, "topology"), fields.whole(item, "size", 0))
            for item in fields.items(value, "podsetSliceRequiredTopologyConstraints")
        ),
        fingerprint=json.dumps(value, sort_keys=True, separators=(",", ":"), default=str),
    )


def _relevant(spec: Json) -> dict[str, object]:
    relevant: dict[str, object] = {name: spec[name] for name in _POD_FIELDS if spec.get(name) is not None}
    for kind in ("initContainers", "containers"):
        relevant[kind] = [
            {name: item[name] for name in _CONTAINER_FIELDS if item.get(name) is not None}
            for item in fields.items(spec, kind)
        ]
    return relevant


def _shape(spec: Json, fingerprint: str) -> PodShape:
    pod = fields.mapping(spec, "resources")
    return PodShape(
        containers=(
            *(_container(item, init=True) for item in fields.items(spec, "initContainers")),
            *(_container(item, init=False) for item in fields.items(spec, "containers")),
        ),
        overhead=fields.quantities(spec, "overhead"),
        has_overhead=spec.get("overhead") is not None,
        pod_requests=fields.quantities(pod, "requests") if pod else None,
        pod_limits=fields.quantities(pod, "limits") if pod else None,
        runtime_class=fields.text(spec, "runtimeClassName"),
        claims=_claims(spec),
        node_selector=fields.labels(spec, "nodeSelector"),
        affinity=_affinity(spec),
        tolerations=fields.tolerations(spec),
        fingerprint=fingerprint,
    )


def _claims(spec: Json) -> tuple[PodClaim, ...]:
    """The pod's device claims, each once; includes claims that containers name without the pod having them."""
    found = [
        PodClaim(
            fields.text(claim, "name"),
            template=fields.text(claim, "resourceClaimTemplateName"),
            claim=fields.text(claim, "resourceClaimName"),
        )
        for claim in fields.items(spec, "resourceClaims")
    ]
    names = {claim.name for claim in found}
    for kind in ("initContainers", "containers"):
        for container in fields.items(spec, kind):
            for claim in fields.items(fields.mapping(container, "resources"), "claims"):
                if (name := fields.text(claim, "name")) not in names:
                    names.add(name)
                    found.append(PodClaim(name, of_pod=False))
    return tuple(found)


def _container(source: Json, *, init: bool) -> ContainerRequests:
    wanted = fields.mapping(source, "resources")
    name = fields.text(source, "name")
    try:
        return ContainerRequests(
            name=name,
            requests=fields.quantities(wanted, "requests"),
            limits=fields.quantities(wanted, "limits"),
            init=init,
            sidecar=init and fields.text(source, "restartPolicy") == "Always",
        )
    except BadInput as error:
        raise BadInput(f"container {name}: resources.{error}") from error


def _affinity(spec: Json) -> tuple[NodeSelectorTerm, ...] | None:
    node = fields.mapping(fields.mapping(spec, "affinity"), "nodeAffinity")
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    return tuple(
        NodeSelectorTerm(fields.requirements(term, "matchExpressions"), fields.requirements(term, "matchFields"))
        for term in fields.items(cast(Json, required), "nodeSelectorTerms")
    )
