# SPDX-License-Identifier: Apache-2.0
"""`mkctl binaries`: make sure that the real control plane's binaries are here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from multikueue.cli.display import StepDisplay, errors_of


def binaries(
    optional: Annotated[bool, typer.Option("--optional", help="exit 0 with a word when they cannot be had")] = False,
) -> None:
    """Find, download or build etcd and the Kubernetes control plane; print their folder."""
    from multikueue.devcluster.binaries import acquire
    from multikueue.devcluster.errors import BinariesUnavailable

    with errors_of("binaries"):
        try:
            with StepDisplay() as display:
                found = acquire.acquire(progress=display)
        except BinariesUnavailable as error:
            if not optional:
                raise
            print(f"tests of real clusters will be skipped: {error}", file=sys.stderr)
            return
        print(found.folder)
