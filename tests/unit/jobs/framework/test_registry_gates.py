# SPDX-License-Identifier: Apache-2.0
"""What feature gates change of the kinds that a Configuration enables."""

from __future__ import annotations

import pytest

from multikueue.api.configuration_file import load
from multikueue.jobs.framework.capabilities import ForwardingKind
from multikueue.jobs.framework.registry import JobRegistry

RUNNING = {"spec": {"serveConfigV2": "applications: []"}}
CHANGED = {"spec": {"serveConfigV2": "applications: [{name: fruit}]"}}


@pytest.mark.parametrize(
    ("gates", "forwards"), [("", True), ("featureGates: {MultiKueueRemoteSpecSync: false}", False)], ids=["on", "off"]
)
def test_changes_of_running_jobs_are_forwarded_while_the_gate_is_on(gates: str, forwards: bool) -> None:
    kinds = JobRegistry.configured(load(f"integrations: {{frameworks: [ray.io/rayservice]}}\n{gates}"))
    [kind] = [each for each in kinds if each.resource.kind == "RayService"]
    assert isinstance(kind, ForwardingKind)
    assert kind.forwards() is forwards
    assert bool(kind.forwarded_digest(RUNNING)) is forwards
    assert (kind.forwarded_patch(RUNNING, CHANGED) is not None) is forwards
