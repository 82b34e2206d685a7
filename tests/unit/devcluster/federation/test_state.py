# SPDX-License-Identifier: Apache-2.0
"""A federation's state is read whole or not at all, and a lock tells whether it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.federation import state
from devcluster.federation.state import ClusterState, ComponentState, FederationPhase, FederationState
from multikueue.core.errors import BadInput

TOLD = FederationState(
    name="default",
    provider="binaries",
    phase=FederationPhase.UP,
    supervisor=1,
    clusters=(ClusterState(name="hub", role="hub", server="https://127.0.0.1:1", kubeconfig="/k"),),
    components=(ComponentState(owner="hub", name="apiserver", pid=2, running=True, log="/l"),),
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    TOLD.write(tmp_path)
    assert FederationState.read(tmp_path) == TOLD
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_folder_without_a_state_has_none(tmp_path: Path) -> None:
    assert FederationState.read(tmp_path) is None


def test_an_unknown_cluster_lists_the_names_there_are() -> None:
    with pytest.raises(BadInput, match=r"no cluster 'worker-9', only hub"):
        TOLD.cluster("worker-9")


def test_a_federation_is_supervised_while_its_lock_is_held(tmp_path: Path) -> None:
    assert not state.is_supervised(tmp_path)
    with state.supervising(tmp_path):
        assert state.is_supervised(tmp_path)
        with pytest.raises(BadInput, match="another supervisor"), state.supervising(tmp_path):
            pytest.fail("two supervisors held the lock")
    assert not state.is_supervised(tmp_path)


def test_fields_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    TOLD.write(tmp_path)
    path = tmp_path / "state.json"
    text = path.read_text().replace('"pid":', '"later": 1, "pid":')
    path.write_text(text.replace('"provider":', '"more": [], "provider":'))
    assert FederationState.read(tmp_path) == TOLD
