# SPDX-License-Identifier: Apache-2.0
"""Our own definitions on both servers."""

from __future__ import annotations

import pytest

from multikueue.api import crds
from tests.conformance.crd.installed import install, old_version, without_conversion
from tests.conformance.crd.things import DEFINITION
from tests.conformance.harness import Both


@pytest.fixture(scope="package")
async def our_definitions(both: Both) -> None:
    """Everything in `crds/`, without the conversion that needs a manager, and what has two versions once more."""
    definitions = crds.manifests()
    two = [old_version(definition) for definition in definitions if len(definition["spec"]["versions"]) > 1]
    await install(both, *map(without_conversion, definitions), *two)


@pytest.fixture(scope="package")
async def things(both: Both) -> None:
    """The kind with one field for everything."""
    await install(both, DEFINITION)
