# SPDX-License-Identifier: Apache-2.0
"""The options of `mkctl up`, merged with the stored options of a federation of that name.

Options that are not given keep their stored value. A different value is refused, since clusters with running workloads
cannot be rebuilt; only the manager's Configuration can change while the federation is stopped. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from devcluster.federation.spec import SupervisedSpec
from devcluster.kubelet import node_groups
from devcluster.kubelet.node_groups import MAX_NODES, NodeGroups, VirtualNodeGroup
from devcluster.providers import catalog
from multikueue.cli.local import configuration_file
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt

DEFAULT_WORKERS: Final = 2
DEFAULT_NODES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """The options of the command line; None and empty lists mean not given."""

    provider: str | None = None
    workers: int | None = None
    nodes: str | None = None
    labels: Sequence[str] = ()
    resources: Sequence[str] = ()
    taints: Sequence[str] = ()
    worker_queues: bool | None = None
    as_kind: str | None = None
    kubeconfig: str | None = None
    config: Path | None = None

    def spec(self, name: str, stored: SupervisedSpec | None, *, running: bool = False) -> SupervisedSpec:
        """The federation to start: these options over the stored ones. Raises `BadInput`."""
        base = stored or SupervisedSpec(name=name, provider=catalog.DEFAULT, workers=DEFAULT_WORKERS, nodes={})
        if self.provider is not None:
            catalog.check(self.provider)
            base = replace(base, provider=self.provider)
        if self.as_kind is not None:
            base = replace(base, as_kind=self.as_kind, worker_queues=bool(self.as_kind))
        if self.workers is not None:
            base = replace(base, workers=self.workers)
        if self.worker_queues is not None:
            base = replace(base, worker_queues=self.worker_queues)
        if self.kubeconfig is not None:
            base = replace(base, kubeconfig=self.kubeconfig)
        if self.config is not None:
            base = replace(
                base, configuration=configuration_file.read(self.config), configuration_file=str(self.config.absolute())
            )
        _check_combination(base)
        if stored is None or self._has_node_options:
            base = replace(base, nodes=self._shapes(base.clusters_with_nodes))
        if stored is not None:
            _refuse_differences(stored, base, running=running)
        return base

    @property
    def _has_node_options(self) -> bool:
        return self.nodes is not None or bool(self.labels or self.resources or self.taints)

    def _shapes(self, clusters: Sequence[str]) -> NodeGroups:
        text = str(DEFAULT_NODES) if self.nodes is None else self.nodes
        if text.isascii() and text.isdigit():
            count = int(text[:9])
            if count > MAX_NODES:
                raise BadInput(f"--nodes {excerpt(text)}: at most {MAX_NODES} nodes per cluster")
            found = node_groups.alike(clusters, count=count)
        else:
            found = node_groups.read(Path(text), clusters)
        return node_groups.with_options(found, labels=self.labels, resources=self.resources, taints=self.taints)


def _check_combination(spec: SupervisedSpec) -> None:
    if not spec.as_kind and not spec.workers:
        raise BadInput("--workers 0 needs --as-kind; without it a federation has at least one worker")
    if not spec.as_kind and spec.kubeconfig:
        raise BadInput("--kubeconfig needs --as-kind")
    if spec.as_kind and not spec.worker_queues:
        raise BadInput("--no-worker-queues cannot be used with --as-kind, which installs the manager on every cluster")


def _refuse_differences(stored: SupervisedSpec, requested: SupervisedSpec, *, running: bool) -> None:
    """Raise `BadInput` for changes: any in a running federation, those of clusters in a stopped one."""
    name = stored.name
    restart = False
    lines = [
        f"{option}: stored {old}, requested {new}"
        for option, old, new in (
            ("--provider", stored.provider, requested.provider),
            ("--workers", stored.workers, requested.workers),
            ("--as-kind", stored.as_kind or "off", requested.as_kind or "off"),
            ("--kubeconfig", stored.kubeconfig or "none", requested.kubeconfig or "none"),
            ("--worker-queues", _on(stored.worker_queues), _on(requested.worker_queues)),
        )
        if old != new
    ]
    if not lines and stored.nodes != requested.nodes:
        lines = [
            f"nodes of {cluster}: stored {described(stored.nodes.get(cluster, ()))}, requested {described(groups)}"
            for cluster, groups in requested.nodes.items()
            if tuple(stored.nodes.get(cluster, ())) != tuple(groups)
        ]
    if not lines and running and stored.configuration != requested.configuration:
        restart = True
        lines = [f"--config: stored {_file(stored)}, requested other settings in {requested.configuration_file}"]
    if not lines:
        return
    change = (
        f"to change the Configuration: mkctl down --name {name} --keep-data, then this command again"
        if restart
        else f"to recreate it without its data: mkctl down --name {name}, then this command again"
    )
    raise BadInput(
        "\n".join(
            [
                f"federation {name} has other options; nothing was changed",
                *lines,
                f"to use the stored options: mkctl up --name {name}",
                change,
            ]
        )
    )


def described(groups: Sequence[VirtualNodeGroup]) -> str:
    """The virtual nodes of a cluster on one line."""
    found = []
    for group in groups:
        traits = [f"{key}={value}" for key, value in (*group.traits.labels.items(), *group.traits.resources.items())]
        traits += [f"{taint.key}={taint.value}:{taint.effect}" for taint in group.traits.taints]
        named = "" if group.prefix == node_groups.DEFAULT_PREFIX else f" {group.prefix}"
        found.append(f"{group.count}{named}{' with ' if traits else ''}{' '.join(traits)}")
    return " and ".join(found) or "0"


def _file(spec: SupervisedSpec) -> str:
    return spec.configuration_file or "none"


def _on(value: bool) -> str:
    return "on" if value else "off"
