# SPDX-License-Identifier: Apache-2.0
"""For fixtures whose clusters are embedded, and on request of real binaries."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import Provider

BOTH_PROVIDERS: Final = (
    pytest.param("embedded", id="embedded"),
    pytest.param("binaries", id="binaries", marks=[pytest.mark.binaries, pytest.mark.conformance]),
)
"""The parameters of such a fixture; its module needs the fixture `kube_binaries`."""


def provider_of(request: pytest.FixtureRequest, folder: Path) -> Provider:
    """The provider that the parameter of the fixture names, not started yet, with its files in that folder."""
    if request.param == "embedded":
        return EmbeddedProvider(folder=folder)
    return BinariesProvider(folder=folder, binaries=request.getfixturevalue("kube_binaries"))
