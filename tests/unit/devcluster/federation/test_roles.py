# SPDX-License-Identifier: Apache-2.0
"""The options of the agents of a local federation follow from the Configuration of its manager."""

from __future__ import annotations

from pathlib import Path

from devcluster.federation.roles import agent_kinds
from worker_agent import options


def test_an_agent_serves_the_frameworks_and_the_external_frameworks_of_its_manager(tmp_path: Path) -> None:
    external = [{"name": "Run.v1.ci.example.com"}, {"name": "Fish.v1.sea.example.com", "plural": "fish"}]
    flags = agent_kinds({"multiKueue": {"externalFrameworks": external}}, folder=tmp_path)
    assert flags == [
        "--frameworks=batch/job",
        "--external-frameworks=Run.v1.ci.example.com,Fish.v1.sea.example.com=fish",
    ]
    served = options.parse(["--cluster", "w", "--hub-kubeconfig", "unused", *flags]).integrations
    assert [each.resource.plural for each in served] == ["jobs", "runs", "fish"]
    assert agent_kinds({}, folder=tmp_path) == ["--frameworks=batch/job"]
