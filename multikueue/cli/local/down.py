# SPDX-License-Identifier: Apache-2.0
"""`mkctl down`: stop a local federation."""

from __future__ import annotations

from typing import Annotated

import typer

from devcluster.progress import Step
from multikueue.cli.display import StepDisplay, errors_of
from multikueue.cli.local import federations, kubeconfig_copy
from multikueue.cli.local.federations import DEFAULT_NAME


def down(
    name: Annotated[
        str, typer.Option("--name", "--federation", metavar="NAME", help="Name of the federation.")
    ] = DEFAULT_NAME,
    everything: Annotated[bool, typer.Option("--all", help="Stop all federations of this user.")] = False,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Keep the data, so that `mkctl up` can start the federation again.")
    ] = False,
) -> None:
    """Stop a local federation and delete its data and logs. Exit code 0 also if it does not exist."""
    with errors_of("down"):
        for each in federations.names() if everything else [name]:
            folder = federations.folder_of(each)
            if not folder.exists():
                print(f"federation {each!r} does not exist")
                continue
            with StepDisplay() as display:
                display(Step(f"stopping federation {each}"))
                federations.end(folder)
                if not keep_data:
                    kubeconfig_copy.remove(folder)
                    federations.forget(folder)
            if keep_data:
                print(f"federation {each} is down; start it again with `mkctl up --name {each}`")
            else:
                print(f"federation {each} is down and its data are deleted")
