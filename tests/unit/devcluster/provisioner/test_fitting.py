# SPDX-License-Identifier: Apache-2.0
"""Whether the pods of a request fit, and on how many new nodes of 8 cpu."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster.controllers.placement import NodeInfo
from devcluster.provisioner.fitting import lack_on, new_nodes, selected_labels


def pod(cpu: str, **spec: Any) -> dict[str, Any]:
    """A pod of one container."""
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec}


@pytest.mark.parametrize(
    ("groups", "nodes"),
    [
        pytest.param([(pod("2"), 4)], 1, id="four of two"),
        pytest.param([(pod("6"), 3)], 3, id="one on each"),
        pytest.param([(pod("6"), 1), (pod("2"), 1)], 1, id="two kinds on one"),
    ],
)
def test_pods_share_the_new_nodes(groups: list[tuple[dict[str, Any], int]], nodes: int) -> None:
    assert new_nodes(groups, labels={}, most=10) == (nodes, "")


def test_more_nodes_than_are_left_are_refused() -> None:
    assert new_nodes([(pod("6"), 3)], labels={}, most=2)[1].startswith("out of capacity: more than 2 nodes")


def test_a_pod_that_no_empty_node_could_run_is_refused() -> None:
    assert new_nodes([(pod("9"), 1)], labels={}, most=9)[1].startswith("a pod does not fit on an empty node")


def test_existing_nodes_are_filled_in_turn() -> None:
    def free() -> list[NodeInfo]:
        return [NodeInfo(name="n", allocatable={"cpu": 4000, "pods": 10_000})]

    assert lack_on([(pod("2"), 2)], free()) == ""
    assert lack_on([(pod("2"), 3)], free()).startswith("capacity for 2 of 3 pods")


def test_new_nodes_have_the_labels_that_the_pods_select() -> None:
    assert selected_labels([(pod("1", nodeSelector={"pool": "a"}), 1), (pod("1"), 1)]) == {"pool": "a"}
