# SPDX-License-Identifier: Apache-2.0
"""Our own kinds on both servers."""

from __future__ import annotations

import pytest

from multikueue.api import crds
from tests.conformance.crd.installed import install, without_conversion
from tests.conformance.harness import Both


@pytest.fixture(scope="package")
async def our_kinds(both: Both) -> None:
    """Everything in `crds/`, without the conversion that needs a manager."""
    await install(both, *map(without_conversion, crds.manifests()))
