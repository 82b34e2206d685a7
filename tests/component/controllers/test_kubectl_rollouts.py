# SPDX-License-Identifier: Apache-2.0
"""kubectl's commands for rollouts work against an embedded cluster: status, history, undo, scale, restart, get."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio
import anyio.to_thread
import orjson
import pytest

from devcluster.controllers.app import Controllers
from devcluster.kubelet.node import several
from devcluster.kubelet.virtual_nodes import VirtualNodes
from devcluster.providers.binaries.release import KUBECTL, Binaries
from devcluster.resources import DAEMON_SETS, DEPLOYMENTS, STATEFUL_SETS
from multikueue.api.objects import JsonObject
from multikueue.api.resource import SERVICE_ACCOUNTS, Resource
from multikueue.testing.plugin import kube_binaries
from tests.component.controllers.app_stage import template
from tests.component.controllers.cluster_cases import Place
from tests.support.embedded_process import embedded_cluster

__all__ = ["kube_binaries"]

pytestmark = pytest.mark.binaries


def app(kind: str) -> JsonObject:
    size = {} if kind == DAEMON_SETS.kind else {"replicas": 2}
    spec = {**size, "selector": {"matchLabels": {"app": "web"}}, "template": template()}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": kind.lower()}, "spec": spec}


@pytest.mark.parametrize(
    ("made", "name", "cells"),
    [
        pytest.param(DEPLOYMENTS, "deployment/deployment", ["3/3", "3", "3"], id="of a Deployment"),
        pytest.param(STATEFUL_SETS, "statefulset/statefulset", ["3/3"], id="of a StatefulSet"),
        pytest.param(DAEMON_SETS, "daemonset/daemonset", ["2", "2", "2", "2", "2"], id="of a DaemonSet"),
    ],
)
async def test_kubectl_follows_and_changes_rollouts(
    made: Resource, name: str, cells: list[str], kube_binaries: Binaries, tmp_path: Path
) -> None:
    with embedded_cluster(tmp_path) as cluster:
        async with cluster, cluster.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(Controllers(client).run)
            tasks.start_soon(VirtualNodes(client, nodes=several(2)).run)
            await Place(client, "default").present(SERVICE_ACCOUNTS, "default")

            async def kubectl(*arguments: str) -> str:
                command = [str(kube_binaries.path(KUBECTL)), f"--kubeconfig={cluster.kubeconfig}", *arguments]
                done = await anyio.to_thread.run_sync(
                    lambda: subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
                )
                assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
                return done.stdout

            await client.create(made, app(made.kind), namespace="default")
            await kubectl("rollout", "status", name, "--timeout=60s")
            if made is not DAEMON_SETS:
                await kubectl("scale", name, "--replicas=3")
                await kubectl("rollout", "status", name, "--timeout=60s")
            await kubectl("annotate", name, "kubernetes.io/change-cause=restarted")
            await kubectl("rollout", "restart", name)
            await kubectl("rollout", "status", name, "--timeout=60s")
            history = await kubectl("rollout", "history", name)
            rows = [line.split() for line in history.splitlines() if line[:1].isdigit()]
            assert [row[0] for row in rows] == ["1", "2"]
            assert rows[1][1:] == ["restarted"]
            detail = await kubectl("rollout", "history", name, "--revision=2")
            assert "kubectl.kubernetes.io/restartedAt" in detail
            await kubectl("rollout", "undo", name)
            await kubectl("rollout", "status", name, "--timeout=60s")
            row = await kubectl("get", name, "--no-headers")
            assert row.split()[1 : 1 + len(cells)] == cells
            pods = orjson.loads(await kubectl("get", "pods", "--output=json"))["items"]
            assert all("kubectl.kubernetes.io/restartedAt" not in p["metadata"]["annotations"] for p in pods)
            tasks.cancel_scope.cancel()
