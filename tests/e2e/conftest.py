# SPDX-License-Identifier: Apache-2.0
"""Whole federations of processes for the tests of this folder: of real binaries, which are the truth."""

from __future__ import annotations

from functools import partial

import pytest

from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.binaries.release import Binaries
from devcluster.providers.provider import ProviderFactory
from tests.support.sockets import sockets_settle

__all__ = ["sockets_settle"]


@pytest.fixture(scope="session")
def mk_provider(kube_binaries: Binaries) -> ProviderFactory:
    return partial(BinariesProvider, binaries=kube_binaries)
