# SPDX-License-Identifier: Apache-2.0
"""`mkctl binaries`: find, download or build the binaries of a real control plane."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from multikueue.cli.display import StepDisplay, errors_of


def binaries(
    optional: Annotated[
        bool, typer.Option("--optional", help="Exit with code 0 and a message if they are not available.")
    ] = False,
) -> None:
    """Find, download or build etcd and the Kubernetes control plane, and print their folder."""
    from devcluster.errors import BinariesUnavailable
    from devcluster.providers.binaries import acquire

    with errors_of("binaries"):
        try:
            with StepDisplay() as display:
                found = acquire.acquire(progress=display)
        except BinariesUnavailable as error:
            if not optional:
                raise
            print(f"mkctl binaries: not available; tests with real clusters are skipped: {error}", file=sys.stderr)
            return
        print(found.folder)
