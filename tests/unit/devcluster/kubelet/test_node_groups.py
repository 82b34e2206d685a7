# SPDX-License-Identifier: Apache-2.0
"""NodeGroups of virtual nodes: options and files become nodes, and a mistake in either is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.kubelet import node_groups
from devcluster.kubelet.node import of_groups
from devcluster.kubelet.node_groups import NodeTaint, NodeTraits, VirtualNodeGroup
from multikueue.core.errors import BadInput

WORKERS = ("worker-1", "worker-2")


def test_an_option_without_a_cluster_is_for_the_nodes_of_each() -> None:
    found = node_groups.with_options(node_groups.alike(WORKERS, count=1), labels=["zone=a"])
    assert {cluster: groups[0].traits.labels for cluster, groups in found.items()} == {
        "worker-1": {"zone": "a"},
        "worker-2": {"zone": "a"},
    }


def test_an_option_with_a_cluster_is_for_its_nodes_only() -> None:
    found = node_groups.with_options(
        node_groups.alike(WORKERS, count=1),
        labels=["worker-1:zone=a"],
        resources=["worker-2:example.com/gpu=4"],
        taints=["worker-1:dedicated=x:NoSchedule"],
    )
    taint = NodeTaint(key="dedicated", value="x", effect="NoSchedule")
    assert found["worker-1"][0].traits == NodeTraits(labels={"zone": "a"}, taints=(taint,))
    assert found["worker-2"][0].traits == NodeTraits(resources={"example.com/gpu": "4"})


def test_the_later_option_wins() -> None:
    found = node_groups.with_options(
        node_groups.alike(WORKERS, count=1),
        labels=["zone=a", "worker-2:zone=b"],
        taints=["k=a:NoSchedule", "k:NoSchedule"],
    )
    assert [found[each][0].traits.labels["zone"] for each in WORKERS] == ["a", "b"]
    assert [taint.value for taint in found["worker-1"][0].traits.taints] == [""]


def test_nodes_have_the_defaults_beneath_their_shape() -> None:
    traits = NodeTraits(labels={"pool": "gpu"}, resources={"cpu": "16", "example.com/gpu": "4"})
    (node,) = of_groups([VirtualNodeGroup(prefix="gpu", traits=traits)])
    assert (node.name, node.labels) == ("gpu-1", {"pool": "gpu"})
    assert node.allocatable["memory"] == "32Gi"
    assert (node.allocatable["cpu"], node.allocatable["example.com/gpu"]) == ("16", "4")


def test_groups_that_share_a_name_count_on() -> None:
    groups = [VirtualNodeGroup(count=2), VirtualNodeGroup(prefix="gpu"), VirtualNodeGroup(count=1)]
    assert [node.name for node in of_groups(groups)] == ["node-1", "node-2", "gpu-1", "node-3"]


def test_a_group_is_read_back_from_json_as_it_was() -> None:
    group = VirtualNodeGroup(
        prefix="gpu",
        count=3,
        traits=NodeTraits(
            labels={"a": "b"},
            taints=(NodeTaint(key="k", value="", effect="NoExecute"),),
            resources={"example.com/gpu": "4"},
        ),
    )
    assert VirtualNodeGroup.from_json(group.to_json()) == group


def test_a_file_gives_groups_to_one_cluster_or_to_each(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text("""
- count: 1
- cluster: worker-2
  name: gpu
  count: 3
  labels: {pool: gpu, rank: 7}
  taints: ["dedicated=gpu:NoSchedule"]
  resources: {example.com/gpu: 4}
""")
    found = node_groups.read(file, WORKERS)
    assert [group.count for group in found["worker-1"]] == [1]
    _, gpu = found["worker-2"]
    assert (gpu.prefix, gpu.count) == ("gpu", 3)
    assert gpu.traits.labels == {"pool": "gpu", "rank": "7"}
    assert gpu.traits.resources == {"example.com/gpu": "4"}
    assert gpu.traits.taints == (NodeTaint(key="dedicated", value="gpu", effect="NoSchedule"),)


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("labels", "zone", "expected KEY=VALUE"),
        ("labels", "=a", "expected KEY=VALUE"),
        ("labels", "west:zone=a", 'no cluster "west" with nodes, only worker-1, worker-2'),
        ("labels", "zo ne=a", "name part must consist of"),
        ("labels", "zone=a b", "a valid label must"),
        ("resources", "example.com/gpu=many", "is not a quantity"),
        ("resources", "example.com/gpu=-1", "not negative"),
        ("resources", "example.com/gpu=500m", "whole numbers"),
        ("resources", "cpu:=4", "expected KEY=VALUE"),
        ("taints", "dedicated=x", "expected a taint such as"),
        ("taints", "dedicated=x:Never", "expected one of the effects NoSchedule"),
        ("taints", "west:dedicated=x:NoSchedule", 'no cluster "west"'),
        ("taints", ":NoSchedule", "expected a taint such as"),
    ],
)
def test_a_bad_option_is_named_with_what_was_expected(option: str, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        node_groups.with_options(node_groups.alike(WORKERS, count=1), **{option: [text]})
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "expected a list of groups"),
        ("- 3", "group 0: expected a mapping"),
        ("- {count: 1, colour: red}", 'no field "colour"'),
        ("- {name: gpu}", "count is missing"),
        ("- {count: -1}", "count: expected a whole number from 0 to 1000"),
        ("- {count: 1, name: G_PU}", 'name "G_PU": a lowercase RFC 1123 label'),
        ("- {count: 1, cluster: west}", 'no cluster "west"'),
        ("- {count: 1, labels: [a]}", "labels: expected a mapping"),
        ("- {count: 1, labels: {a: [b]}}", "labels: a: expected text or a number"),
        ("- {count: 1, taints: dedicated}", "taints: expected a list"),
        ("- {count: 1, taints: [{key: a}]}", "taints: expected a taint such as"),
        ("- {count: 1, resources: {example.com/gpu: yes}}", "expected text or a number"),
        ("- {count: 600}\n- {count: 600}", "worker-1 would have 1200 nodes"),
        ("- {count: [", "not YAML"),
    ],
)
def test_a_bad_file_is_named_with_the_place_in_it(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match=message) as refused:
        node_groups.read(file, WORKERS)
    assert str(file) in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="neither a number nor a file that can be read"):
        node_groups.read(tmp_path / "absent.yaml", WORKERS)
