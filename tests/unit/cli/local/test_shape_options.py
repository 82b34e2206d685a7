# SPDX-License-Identifier: Apache-2.0
"""The options of `mkctl up`, merged with the stored options of a federation of that name."""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.federation.spec import SupervisedSpec
from multikueue.cli.local import configuration_file, kubeconfig_copy
from multikueue.cli.local.shape_options import ShapeOptions
from multikueue.core.errors import BadInput

KEPT = ShapeOptions(workers=1, nodes="3", labels=["zone=a"], worker_queues=True).spec("f", None)


def test_without_options_there_are_two_workers_of_two_nodes() -> None:
    spec = ShapeOptions().spec("f", None)
    assert (spec.provider, spec.worker_names, spec.worker_queues) == ("embedded", ["worker-1", "worker-2"], False)
    assert [sum(group.count for group in groups) for groups in spec.nodes.values()] == [2, 2]


def test_options_that_are_not_given_stay_as_they_were() -> None:
    assert ShapeOptions().spec("f", KEPT) == KEPT


def test_the_same_options_again_are_no_difference() -> None:
    assert ShapeOptions(workers=1, nodes="3", labels=["zone=a"], worker_queues=True).spec("f", KEPT) == KEPT


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (ShapeOptions(workers=2), "--workers: stored 1, requested 2"),
        (ShapeOptions(provider="binaries"), "--provider: stored embedded, requested binaries"),
        (ShapeOptions(worker_queues=False), "--worker-queues: stored on, requested off"),
        (ShapeOptions(nodes="2"), "nodes of worker-1: stored 3 with zone=a, requested 2"),
        (ShapeOptions(labels=["zone=b"]), "nodes of worker-1: stored 3 with zone=a, requested 2 with zone=b"),
    ],
    ids=["workers", "provider", "worker queues", "nodes", "labels"],
)
def test_an_option_that_differs_is_refused_with_the_next_command(asked: ShapeOptions, message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        asked.spec("f", KEPT)
    assert "nothing was changed" in str(refused.value)
    assert "use the stored options: mkctl up --name f" in str(refused.value)
    assert "mkctl down --name f" in str(refused.value)


@pytest.mark.parametrize("count", ["1001", "9" * 5000])
def test_too_many_nodes_are_refused(count: str) -> None:
    with pytest.raises(BadInput, match="at most 1000"):
        ShapeOptions(nodes=count).spec("f", None)


def test_the_options_are_stored_in_the_folder(tmp_path: Path) -> None:
    KEPT.write(tmp_path)
    assert SupervisedSpec.read(tmp_path) == KEPT


def test_what_another_version_kept_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text('{"name": "f", "provider": "embedded", "workers": 2, "nodes": 2}')
    with pytest.raises(BadInput, match="another version"):
        SupervisedSpec.read(tmp_path)


KIND = ShapeOptions(as_kind="k").spec("k", None)


def test_as_kind_the_hub_has_nodes_too_and_every_cluster_a_manager() -> None:
    assert (KIND.worker_names, KIND.clusters_with_nodes) == (["worker1", "worker2"], ["hub", "worker1", "worker2"])
    assert set(KIND.nodes) == {"hub", "worker1", "worker2"}
    assert KIND.worker_queues


def test_as_kind_there_may_be_one_cluster_alone() -> None:
    assert ShapeOptions(as_kind="k", workers=0).spec("k", None).clusters_with_nodes == ["hub"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (ShapeOptions(workers=0), "--workers 0 needs --as-kind"),
        (ShapeOptions(kubeconfig="/k"), "--kubeconfig needs --as-kind"),
        (ShapeOptions(as_kind="k", worker_queues=False), "--no-worker-queues cannot be used with --as-kind"),
    ],
    ids=["no workers", "a kubeconfig", "no worker queues"],
)
def test_options_that_make_no_sense_together_are_refused(asked: ShapeOptions, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        asked.spec("f", None)


def test_a_federation_does_not_become_one_of_kind() -> None:
    with pytest.raises(BadInput, match="--as-kind: stored off, requested k"):
        ShapeOptions(as_kind="k").spec("f", KEPT)


def test_the_kubeconfig_is_written_and_removed_with_its_federation(tmp_path: Path) -> None:
    folder, copy = tmp_path / "folder", tmp_path / "copy"
    folder.mkdir()
    spec = ShapeOptions(as_kind="k", kubeconfig=str(copy)).spec("k", None)
    spec.write(folder)
    (folder / "kubeconfig").write_text("ours")
    kubeconfig_copy.check(spec, folder)
    kubeconfig_copy.write(spec, folder)
    assert (copy.read_text(), copy.stat().st_mode & 0o777) == ("ours", 0o600)
    kubeconfig_copy.check(spec, folder)
    kubeconfig_copy.remove(folder)
    assert not copy.exists()


def test_a_kubeconfig_that_is_not_ours_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_text("of another")
    spec = ShapeOptions(as_kind="k", kubeconfig=str(copy)).spec("k", None)
    spec.write(tmp_path)
    with pytest.raises(BadInput, match="the file already exists"):
        kubeconfig_copy.check(spec, tmp_path)
    (tmp_path / "kubeconfig").write_text("ours")
    kubeconfig_copy.remove(tmp_path)
    assert copy.read_text() == "of another"


def test_a_kubeconfig_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    spec = ShapeOptions(as_kind="k", kubeconfig=str(tmp_path / "absent" / "k")).spec("k", None)
    with pytest.raises(BadInput, match="does not exist or is not writable"):
        kubeconfig_copy.check(spec, tmp_path)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "manager.yaml"
    path.write_text("{manageJobsWithoutQueueName: false, metrics: {bindAddress: ':1'}}")
    return path


def test_the_settings_of_the_manager_are_kept(tmp_path: Path, settings: Path) -> None:
    spec = ShapeOptions(config=settings).spec("f", None)
    spec.write(tmp_path)
    kept = SupervisedSpec.read(tmp_path)
    assert kept.configuration == {"manageJobsWithoutQueueName": False, "metrics": {"bindAddress": ":1"}}
    settings.unlink()
    assert ShapeOptions().spec("f", kept) == kept


def test_other_settings_of_the_manager_are_taken_while_nothing_runs(settings: Path) -> None:
    assert ShapeOptions(config=settings).spec("f", KEPT).configuration_file == str(settings)


def test_other_settings_of_a_manager_that_runs_are_refused_with_the_command_that_keeps_the_data(settings: Path) -> None:
    with pytest.raises(BadInput, match="--config: stored none") as refused:
        ShapeOptions(config=settings).spec("f", KEPT, running=True)
    assert "mkctl down --name f --keep-data, then this command again" in str(refused.value)


def test_addresses_in_the_settings_have_no_effect_and_are_named(settings: Path) -> None:
    assert configuration_file.unused(configuration_file.read(settings)) == ["metrics.bindAddress"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fairSharingg: {}", "fairSharingg: unknown field; did you mean fairSharing"),
        ("namespace: other", "namespace: must be kueue-system"),
        (
            "integrations: {frameworks: [batch/jobs, batch/jobb]}",
            'integrations.frameworks: "batch/jobs", "batch/jobb" are not',
        ),
        ("multiKueue: {dispatcherName: multikueue.io/dispatcher-x}", "multiKueue.dispatcherName"),
        ("waitForPodsReady: {timeout: x}", "waitForPodsReady.timeout"),
    ],
    ids=["an unknown field", "another namespace", "unknown frameworks", "no such dispatcher", "no duration"],
)
def test_settings_that_cannot_be_are_refused_by_file_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as refused:
        ShapeOptions(config=path).spec("f", None)
    assert message in str(refused.value)
    assert str(path) in str(refused.value)
