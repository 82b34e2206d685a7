# SPDX-License-Identifier: Apache-2.0
"""`mkctl down`: end a federation."""

from __future__ import annotations

from typing import Annotated

import typer

from multikueue.cli import federations
from multikueue.cli.display import StepDisplay, errors_of
from multikueue.cli.federations import DEFAULT_NAME
from multikueue.devcluster.progress import Step


def down(
    name: Annotated[str, typer.Option(help="which federation")] = DEFAULT_NAME,
    everything: Annotated[bool, typer.Option("--all", help="every federation of yours")] = False,
    keep_data: Annotated[bool, typer.Option("--keep-data", help="so that `mkctl up` goes on with them")] = False,
) -> None:
    """End a federation and remove its data and logs. Exit code 0 also when there is none."""
    with errors_of("down"):
        for each in federations.names() if everything else [name]:
            folder = federations.folder_of(each)
            if not folder.exists():
                print(f"there is no federation {each!r}")
                continue
            with StepDisplay() as display:
                display(Step(f"ending federation {each}"))
                federations.end(folder)
                if not keep_data:
                    federations.forget(folder)
            print(f"federation {each} is down")
