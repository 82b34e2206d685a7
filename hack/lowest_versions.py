# SPDX-License-Identifier: Apache-2.0
"""Print pip's constraints for the lowest version of each library that pyproject.toml allows, for `make lowest`.

What only the tests need has the versions of requirements.lock. What the libraries themselves depend on is not held,
since they say what they work with. A bound must name a version that exists, or pip finds none.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[1]


def lowest_versions(dependencies: Iterable[str]) -> Iterator[str]:
    """`name==version` of each dependency. Raises `ValueError` for one without a lower bound."""
    for dependency in dependencies:
        required = Requirement(dependency)
        bounds = [bound.version for bound in required.specifier if bound.operator == ">="]
        if len(bounds) != 1:
            raise ValueError(f"pyproject.toml: {dependency} has {len(bounds)} lower bounds, expected one")
        yield f"{required.name}=={bounds[0]}"


def locked_versions(dependencies: Iterable[str], locked: Iterable[str]) -> Iterator[str]:
    """The lines of a lock file that are about these dependencies."""
    names = {canonicalize_name(Requirement(dependency).name) for dependency in dependencies}
    for line in locked:
        if line.strip() and not line.startswith("#") and canonicalize_name(Requirement(line).name) in names:
            yield line


def main() -> None:
    """Print the constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tested_with = project["dependency-groups"]["test"]
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    print(*lowest_versions(project["project"]["dependencies"]), *locked_versions(tested_with, locked), sep="\n")


if __name__ == "__main__":
    main()
