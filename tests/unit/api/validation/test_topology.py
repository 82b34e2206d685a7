# SPDX-License-Identifier: Apache-2.0
"""What pod sets may ask of topology aware scheduling, each by itself and as a group."""

from __future__ import annotations

import pytest

from multikueue.api.validation.topology import AnnotatedPodSet, topologies

K = "kueue.x-k8s.io/podset-"
REQUIRED, PREFERRED, OTHER = (
    {"required-topology": "rack"},
    {"preferred-topology": "rack"},
    {"required-topology": "host"},
)
GROUP = {"group-name": "g"}


def pod_set(*asked: dict[str, str], name: str = "a", count: int | None = 4) -> AnnotatedPodSet:
    values = {f"{K}{key}": value for each in asked for key, value in each.items()}
    return AnnotatedPodSet(path=name, annotations=values, count=count)


@pytest.mark.parametrize(
    ("pod_sets", "want"),
    [
        pytest.param([pod_set()], [], id="nothing"),
        pytest.param([pod_set(REQUIRED)], [], id="a topology"),
        pytest.param(
            [pod_set(REQUIRED, PREFERRED)],
            [
                f'a: Invalid value: "{K}required-topology, {K}preferred-topology":'
                " must not contain more than one topology annotation"
            ],
            id="two topologies",
        ),
        pytest.param(
            [pod_set({"unconstrained-topology": "maybe"})],
            [f'a[{K}unconstrained-topology]: Invalid value: "maybe": must be a boolean value'],
            id="a topology that is no boolean",
        ),
        pytest.param(
            [pod_set({"slice-required-topology": "rack"})],
            [f"a[{K}slice-size]: Required value: must be set when '{K}slice-required-topology' is specified"],
            id="slices without a size",
        ),
        pytest.param(
            [pod_set({"slice-required-topology": "rack", "slice-size": "5"})],
            [f'a[{K}slice-size]: Invalid value: "5": must not be greater than pod set count 4'],
            id="slices of too many pods",
        ),
        pytest.param(
            [pod_set({"slice-required-topology": "rack", "slice-size": "5"}, count=None)],
            [],
            id="slices of a number of pods that is not known",
        ),
        pytest.param([pod_set(REQUIRED, GROUP, count=1), pod_set(REQUIRED, GROUP)], [], id="a group of a leader"),
        pytest.param(
            [pod_set(REQUIRED, GROUP)],
            [f'a[{K}group-name]: Invalid value: "g": can only define groups of exactly 2 pod sets, got: 1 pod set(s)'],
            id="a group of one",
        ),
        pytest.param([pod_set(REQUIRED, GROUP, count=None)], [], id="a group whose pod sets are not known"),
        pytest.param(
            [pod_set(REQUIRED, GROUP, count=2), pod_set(REQUIRED, GROUP, name="b")],
            [
                f'{name}[{K}group-name]: Invalid value: "g": can only define groups where at least one pod set has only'
                " 1 replica, got: 2 replica(s) and 4 replica(s) in the group"
                for name in "ab"
            ],
            id="a group without a leader",
        ),
        pytest.param(
            [pod_set(REQUIRED, GROUP, count=1), pod_set(OTHER, GROUP, name="b")],
            [
                f"{one}: Invalid value: \"{K}required-topology={value}\": must specify '{K}required-topology'"
                f" or '{K}preferred-topology' topology consistent with '{other}' in group 'g'"
                for one, value, other in (("a", "rack", "b"), ("b", "host", "a"))
            ],
            id="a group of two topologies",
        ),
        pytest.param(
            [pod_set({"group-name": "7", "slice-size": "1", "slice-required-topology": "k"}, count=None)],
            [
                f'a[{K}group-name]: Invalid value: "7": must not be a number',
                f"a[{K}group-name]: Forbidden: may not be set when neither '{K}preferred-topology'"
                f" nor '{K}required-topology' is specified",
                f"a[{K}group-name]: Forbidden: may not be set when '{K}slice-size' is specified",
                f"a[{K}group-name]: Forbidden: may not be set when '{K}slice-required-topology' is specified",
            ],
            id="a group that is a number, with slices and without a topology",
        ),
    ],
)
def test_what_pod_sets_may_ask_for(pod_sets: list[AnnotatedPodSet], want: list[str]) -> None:
    assert [str(error) for error in topologies(pod_sets)] == want
