# SPDX-License-Identifier: Apache-2.0
"""Assignments of several Jobs in one object, which the product does not have: what would a mailbox of batches save?

The definition is that of RemoteAssignment with lists of its spec and of its status, atomic as those are.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Final

from multikueue.api import crds
from multikueue.api.resource import REMOTE_ASSIGNMENTS, Resource
from tests.bench.prices.kinds import ASSIGNMENT, Body, WrittenKind
from tests.bench.prices.writes import PricedWrite, Verb

SIZES: Final = (1, 8, 32)
BATCHES: Final = Resource("bench.multikueue.io", "v1", "AssignmentBatch", "assignmentbatches")


def definition() -> Body:
    """The definition of batches."""
    found = deepcopy(crds.definition(REMOTE_ASSIGNMENTS))
    version = next(each for each in found["spec"]["versions"] if each["storage"])
    schema = version["schema"]["openAPIV3Schema"]
    fields = {name: {"type": "array", "items": schema["properties"][name]} for name in ("spec", "status")}
    for field in fields.values():
        field["x-kubernetes-list-type"] = "atomic"
    schema["properties"] |= {
        name: {"type": "object", "properties": {"assignments": field}} for name, field in fields.items()
    }
    for name in ("required", "x-kubernetes-validations"):
        schema.pop(name, None)
    names = {
        "kind": BATCHES.kind,
        "listKind": BATCHES.list_kind,
        "plural": BATCHES.plural,
        "singular": BATCHES.singular,
    }
    return {
        "apiVersion": found["apiVersion"],
        "kind": found["kind"],
        "metadata": {"name": f"{BATCHES.plural}.{BATCHES.group}"},
        "spec": {
            "group": BATCHES.group,
            "names": names,
            "scope": found["spec"]["scope"],
            "versions": [
                {
                    "name": BATCHES.version,
                    "served": True,
                    "storage": True,
                    "schema": version["schema"],
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def writes(size: int) -> tuple[PricedWrite, ...]:
    """What a batch of so many assignments is written for: it is made, all of them run or have ended, it is deleted."""
    one, status = ASSIGNMENT.spec["spec"], ASSIGNMENT.status
    assert status is not None
    kind = WrittenKind(
        resource=BATCHES,
        spec={"spec": {"assignments": [one] * size}},
        change=lambda number: {"spec": {"assignments": [one | {"epoch": number + 2}] * size}},
        status=lambda number: {"assignments": [status(number)] * size},
    )
    return (
        PricedWrite(kind, Verb.CREATE),
        PricedWrite(kind, Verb.JSON),
        PricedWrite(kind, Verb.JSON, status=True),
        PricedWrite(kind, Verb.DELETE),
    )
