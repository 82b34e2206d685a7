# SPDX-License-Identifier: Apache-2.0
"""Where the example manifests are: in `deploy/examples` of a checkout, beside this module in an installed package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from multikueue.core.errors import BadInput

_FOLDERS: Final = (
    Path(__file__).parents[2] / "deploy" / "examples",
    Path(__file__).parent / "examples",
)


def path_of(name: str) -> Path:
    """The file or folder of an example. Raises `BadInput` that names where it was looked for."""
    for folder in _FOLDERS:
        if (folder / name).exists():
            return folder / name
    raise BadInput(f"there is no example {name} in {' or '.join(map(str, _FOLDERS))}")
