# SPDX-License-Identifier: Apache-2.0
"""The hosts that an admission gives to the pods of a Workload."""

from __future__ import annotations

from contextlib import suppress

from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.topologyslices import expand
from multikueue.core.errors import BadInput


def hosts_of(admission: JsonObject | None) -> set[str]:
    """Those of all pod sets whose lowest level is the host; an assignment that cannot be read has none."""
    found: set[str] = set()
    for each in (admission or {}).get("podSetAssignments") or ():
        topology = each.get("topologyAssignment")
        if topology and (topology.get("levels") or [""])[-1] == HOSTNAME_LABEL:
            with suppress(BadInput, KeyError, TypeError):
                found.update(str(domain["values"][-1]) for domain in expand(topology)["domains"])
    return found
