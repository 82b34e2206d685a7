# SPDX-License-Identifier: Apache-2.0
"""`mkctl kubeconfig`: how to reach a cluster of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multikueue.cli import federations
from multikueue.cli.display import errors_of
from multikueue.cli.federations import DEFAULT_NAME


def kubeconfig(
    cluster: Annotated[str, typer.Argument(help="hub, worker-1, …")] = "hub",
    name: Annotated[str, typer.Option(help="which federation")] = DEFAULT_NAME,
    content: Annotated[bool, typer.Option("--content", help="print the file, not its path")] = False,
) -> None:
    """Print the path of a cluster's kubeconfig, for `export KUBECONFIG=$(mkctl kubeconfig)`."""
    with errors_of("kubeconfig"):
        path = Path(federations.existing(name).cluster(cluster).kubeconfig)
        print(path.read_text() if content else path)
