# SPDX-License-Identifier: Apache-2.0
"""Which hub and which workload `mkctl explain`, `mkctl timeline` and `mkctl cluster` use.

Owns the options for it. The hub's kubeconfig is that of `--kubeconfig`, else of `--federation`, else the one that
kubectl uses, else that of the federation `default` of `mkctl up`. For the hub of a federation of `mkctl up`, the
kubeconfigs of its workers are known too. Imports nothing heavy.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from multikueue.api.constants import DEFAULT_NAMESPACE
from multikueue.cli.local import federations
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key

WORKLOAD: Final = "workload"
_ALIASES: Final = {
    "workloads": WORKLOAD,
    "wl": WORKLOAD,
    "kwl": WORKLOAD,
    "jobs": "job",
}
_KINDS: Final = frozenset({WORKLOAD, "job", *_ALIASES})
_KIND_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """The hub, the known kubeconfigs of workers, and the file of the manager's Configuration if there is one."""

    kubeconfig: str | None
    context: str | None = None
    manager_namespace: str = DEFAULT_NAMESPACE
    configuration: Path | None = None
    workers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkloadRef:
    """A Workload, or the Workload of a job; an empty namespace is that of the kubeconfig's context.

    `kind` is `workload`, or the kind of the job in small letters as its user named it.
    """

    kind: str
    key: Key

    def within(self, namespace: str) -> WorkloadRef:
        """This reference with `namespace` if it has none."""
        return self if self.key.namespace else replace(self, key=Key(namespace, self.key.name))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the hub and the namespaces."""
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        default="",
        help="Namespace of the workload. Default: the namespace of the context.",
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="Kubeconfig of the hub. Default: the one that kubectl uses."
    )
    parser.add_argument("--context", metavar="NAME", help="Context in the kubeconfig. Default: the current one.")
    parser.add_argument("--federation", metavar="NAME", help="Use the hub of this federation of `mkctl up`.")
    parser.add_argument(
        "--manager-namespace",
        metavar="NAME",
        default=DEFAULT_NAMESPACE,
        help=f"Namespace of the manager on the hub. Default: {DEFAULT_NAMESPACE}.",
    )


def hub_options(options: argparse.Namespace) -> HubOptions:
    """The hub of these options. Raises `BadInput`."""
    return hub_of(
        kubeconfig=options.kubeconfig,
        context=options.context,
        federation=options.federation,
        manager_namespace=options.manager_namespace,
    )


def add_workers(parser: argparse.ArgumentParser, *, help: str) -> None:
    """Add the option that names kubeconfigs of workers."""
    parser.add_argument("--worker", dest="workers", metavar="CLUSTER=FILE", action="append", default=[], help=help)


def hub_and_workers(options: argparse.Namespace) -> HubOptions:
    """The hub of these options, and the workers of `add_workers`. Raises `BadInput`."""
    found = hub_options(options)
    named = {}
    for text in options.workers:
        cluster, _, file = text.partition("=")
        if not cluster or not file:
            raise BadInput(f"--worker {text}: must be CLUSTER=FILE")
        named[cluster] = file
    return replace(found, workers={**found.workers, **named})


def hub_of(
    *, kubeconfig: str | None, context: str | None, federation: str | None, manager_namespace: str = DEFAULT_NAMESPACE
) -> HubOptions:
    """The hub that these options select; None and empty ones were not given. Raises `BadInput`."""
    if kubeconfig or context:
        if federation:
            raise BadInput("--federation already selects the hub; omit it, or omit --kubeconfig and --context")
        return HubOptions(kubeconfig=kubeconfig, context=context, manager_namespace=manager_namespace)
    name = federation or _implied()
    if name is None:
        return HubOptions(kubeconfig=None, manager_namespace=manager_namespace)
    found = federations.existing(name)
    configuration = federations.folder_of(name) / "manager.yaml"
    return HubOptions(
        kubeconfig=found.cluster("hub").kubeconfig,
        manager_namespace=manager_namespace,
        configuration=configuration if configuration.exists() else None,
        workers={cluster.name: cluster.kubeconfig for cluster in found.clusters if cluster.role != "hub"},
    )


def target(arguments: list[str], *, kind: str = "", namespace: str = "") -> WorkloadRef:
    """The workload in the arguments: `KIND NAME`, `KIND/NAME`, `KIND NS/NAME` or `KIND/NS/NAME`.

    KIND is `workload` or any kind of job, which is looked up later. With a default `kind`, `NAME` and `NS/NAME` are
    accepted too. `A/NAME` is then read as a namespace and a name unless `namespace` is given and is another than A.
    Raises `BadInput`.
    """
    parts = "/".join(arguments).split("/")
    if len(arguments) > 1:
        kind = ""  # the first argument can only be a kind
    is_kind = parts[0] in _KINDS or parts[0] != namespace
    if kind and (len(parts) == 1 or (len(parts) == 2 and not (namespace and is_kind))):
        parts = [kind, *parts]
    found, named = parts[0].lower(), parts[1:]
    if not _KIND_NAME.fullmatch(found) or len(named) not in (1, 2) or not all(named):
        raise BadInput(
            f"{' '.join(arguments)!r} is not a workload; use workload/NAMESPACE/NAME or KIND/NAMESPACE/NAME,"
            f" where KIND is that of a job such as job or jobset"
        )
    if len(named) == 2 and namespace not in ("", named[0]):
        raise BadInput(f"{' '.join(arguments)!r} has another namespace than --namespace {namespace}; omit one of them")
    return WorkloadRef(_ALIASES.get(found, found), Key(named[0] if len(named) == 2 else namespace, named[-1]))


def _implied() -> str | None:
    """The federation whose hub is in `$KUBECONFIG`, or `default` if kubectl has no kubeconfig."""
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
    return federations.DEFAULT_NAME if federations.DEFAULT_NAME in names and not _kubectl_has_config() else None


def _kubectl_has_config() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST") or (Path.home() / ".kube" / "config").exists())
