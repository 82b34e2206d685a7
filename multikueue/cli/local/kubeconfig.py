# SPDX-License-Identifier: Apache-2.0
"""`mkctl kubeconfig`: the kubeconfig of a cluster of a local federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multikueue.cli.display import errors_of
from multikueue.cli.local import federations
from multikueue.cli.local.federations import DEFAULT_NAME


def kubeconfig(
    cluster: Annotated[
        str | None, typer.Argument(help="hub, worker-1, ... Default: the hub, or all clusters with --as-kind.")
    ] = None,
    name: Annotated[
        str, typer.Option("--name", "--federation", metavar="NAME", help="Name of the federation.")
    ] = DEFAULT_NAME,
    content: Annotated[bool, typer.Option("--content", help="Print the content instead of the path.")] = False,
) -> None:
    """Print the path of a cluster's kubeconfig, for `export KUBECONFIG=$(mkctl kubeconfig)`."""
    with errors_of("kubeconfig"):
        found = federations.existing(name)
        own = found.kubeconfig if cluster is None else ""
        path = Path(own or found.cluster(cluster or "hub").kubeconfig)
        print(path.read_text() if content else path)
