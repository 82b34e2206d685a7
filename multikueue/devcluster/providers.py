# SPDX-License-Identifier: Apache-2.0
"""The providers by name; a provider's module is imported when it is chosen."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from multikueue.core.errors import BadInput
from multikueue.devcluster.provider import ProviderFactory

DEFAULT: Final = "embedded"
PROVIDERS: Final = {
    "embedded": "multikueue.devcluster.embedded.provider:EmbeddedProvider",
    "binaries": "multikueue.devcluster.binaries.provider:BinariesProvider",
}


def factory(name: str) -> ProviderFactory:
    """What makes providers of that name. Raises `BadInput` that lists the names there are."""
    target = PROVIDERS.get(name)
    if target is None:
        raise BadInput(f"there is no provider {name!r}, only {', '.join(PROVIDERS)}")
    module, _, attribute = target.partition(":")
    return cast(ProviderFactory, getattr(import_module(module), attribute))
