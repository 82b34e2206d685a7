# SPDX-License-Identifier: Apache-2.0
"""How `mkctl explain`, `mkctl story` and `mkctl cluster` reach the clusters of a federation.

Owns their options, and which kubeconfig is the hub's: the one that was named, else the federation that was named, else
what kubectl would take, else the federation `default` that `mkctl up` left running. Where that is the hub of a
federation of `mkctl up`, its workers are at hand too. Imports nothing heavy.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from multikueue.api.constants import DEFAULT_NAMESPACE
from multikueue.cli import federations
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key

_KINDS: Final = {
    "workload": "workload",
    "workloads": "workload",
    "wl": "workload",
    "kwl": "workload",
    "job": "job",
    "jobs": "job",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The hub, the workers whose kubeconfig lies at hand, and where the manager's Configuration may be found."""

    kubeconfig: str | None
    context: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    configuration: Path | None = None
    workers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked about: a Workload, or the Workload of a Job; without a namespace, in that of the context."""

    kind: str
    key: Key

    def within(self, namespace: str) -> Target:
        """The same, in that namespace if none was named."""
        return self if self.key.namespace else replace(self, key=Key(namespace, self.key.name))


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which hub, and in which of its namespaces to look."""
    parser.add_argument(
        "-n", "--namespace", metavar="NAME", default="", help="of the workload; default: that of the context"
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="the hub; default: as kubectl finds it")
    parser.add_argument("--context", metavar="NAME", help="the context of that kubeconfig")
    parser.add_argument("--federation", metavar="NAME", help="a federation of `mkctl up`, by its name")
    parser.add_argument(
        "--manager-namespace",
        metavar="NAME",
        default=DEFAULT_NAMESPACE,
        help=f"the manager's own; default: {DEFAULT_NAMESPACE}",
    )


def reach(options: argparse.Namespace) -> Reach:
    """What the options say. Raises `BadInput`."""
    return hub_of(
        kubeconfig=options.kubeconfig,
        context=options.context,
        federation=options.federation,
        namespace=options.manager_namespace,
    )


def hub_of(
    *, kubeconfig: str | None, context: str | None, federation: str | None, namespace: str = DEFAULT_NAMESPACE
) -> Reach:
    """The hub that is meant by what was named, if anything was. Raises `BadInput`."""
    if kubeconfig or context:
        if federation:
            raise BadInput("--federation says which hub already: give either that, or --kubeconfig and --context")
        return Reach(kubeconfig=kubeconfig, context=context, namespace=namespace)
    name = federation or _implied()
    if name is None:
        return Reach(kubeconfig=None, namespace=namespace)
    found = federations.existing(name)
    configuration = federations.folder_of(name) / "manager.yaml"
    return Reach(
        kubeconfig=found.cluster("hub").kubeconfig,
        namespace=namespace,
        configuration=configuration if configuration.exists() else None,
        workers={cluster.name: cluster.kubeconfig for cluster in found.clusters if cluster.role != "hub"},
    )


def target(words: list[str], *, kind: str = "", namespace: str = "") -> Target:
    """The workload that is named by `KIND NAME`, `KIND/NAME`, `KIND NS/NAME`, `KIND/NS/NAME`.

    Where `kind` says what is meant without being told, `NAME` and `NS/NAME` name it, too; `KIND/NAME` does then only
    beside a `namespace`, since it may be a namespace that is called so. Raises `BadInput`.
    """
    parts = "/".join(words).split("/")
    if kind and (len(parts) == 1 or (len(parts) == 2 and not (namespace and parts[0] in _KINDS))):
        parts = [kind, *parts]
    found, named = _KINDS.get(parts[0], ""), parts[1:]
    if not found or len(named) not in (1, 2) or not all(named):
        raise BadInput(f"{' '.join(words)!r} does not name a workload; write workload/NAMESPACE/NAME, or job/…")
    if len(named) == 2 and namespace not in ("", named[0]):
        raise BadInput(f"{' '.join(words)!r} is not in the namespace {namespace} of --namespace")
    return Target(found, Key(named[0] if len(named) == 2 else namespace, named[-1]))


def _implied() -> str | None:
    """The federation whose hub `$KUBECONFIG` names, or `default` where kubectl would know of no cluster."""
    chosen = os.environ.get("KUBECONFIG")
    names = federations.names()
    if chosen:
        hubs = {
            each.kubeconfig: name
            for name in names
            for each in federations.existing(name).clusters
            if each.role == "hub"
        }
        return hubs.get(chosen)
    return federations.DEFAULT_NAME if federations.DEFAULT_NAME in names and not _kubectl_knows() else None


def _kubectl_knows() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST") or (Path.home() / ".kube" / "config").exists())
