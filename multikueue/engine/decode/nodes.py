# SPDX-License-Identifier: Apache-2.0
"""Nodes, and what pods use of them, from API objects of the core group. Raises `BadInput` naming the field."""

from __future__ import annotations

from multikueue.core.conditions import TRUE
from multikueue.core.taints import Taint
from multikueue.engine import resources
from multikueue.engine.decode import fields
from multikueue.engine.decode.fields import Source
from multikueue.engine.decode.pods import Shapes
from multikueue.engine.resources import Requests
from multikueue.engine.topology.capacity import Node
from multikueue.engine.topology.requests import single_pod

_READY = "Ready"


def node(source: Source) -> Node:
    """A Node; one that is not Ready, or cordoned, is not usable."""
    data = fields.read(source)
    spec, status = fields.mapping(data, "spec"), fields.mapping(data, "status")
    ready = any(
        fields.text(item, "type") == _READY and fields.text(item, "status") == TRUE
        for item in fields.items(status, "conditions")
    )
    allocatable = fields.quantities(status, "allocatable")
    return Node(
        name=fields.name_of(data),
        labels=fields.labels(fields.mapping(data, "metadata"), "labels"),
        taints=tuple(
            Taint(fields.text(item, "key"), fields.text(item, "value"), fields.text(item, "effect"))
            for item in fields.items(spec, "taints")
        ),
        allocatable={name: resources.amount(name, amount) for name, amount in allocatable.items()},
        ready=ready,
        usable=ready and spec.get("unschedulable") is not True,
    )


def pod_requests(source: Source, shapes: Shapes) -> Requests:
    """What a pod uses of its node."""
    return single_pod(shapes.of(fields.mapping(fields.read(source), "spec")))
