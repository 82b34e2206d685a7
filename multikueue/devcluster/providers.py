# SPDX-License-Identifier: Apache-2.0
"""The providers of `mkctl` by name; a provider's module is imported when it is chosen."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from multikueue.core.errors import BadInput

if TYPE_CHECKING:  # `mkctl up` asks for names only
    from multikueue.devcluster.provider import ProviderFactory

DEFAULT: Final = "embedded"
PROVIDERS: Final = {
    "embedded": "multikueue.devcluster.embedded.provider:EmbeddedProvider",
    "binaries": "multikueue.devcluster.binaries.provider:BinariesProvider",
}


def check(name: str) -> None:
    """Raise `BadInput` that lists the names there are, unless that is one."""
    if name not in PROVIDERS:
        raise BadInput(f"there is no provider {name!r}, only {', '.join(PROVIDERS)}")


def factory(name: str) -> ProviderFactory:
    """What makes providers of that name. Raises `BadInput` as `check` does."""
    check(name)
    module, _, attribute = PROVIDERS[name].partition(":")
    return cast("ProviderFactory", getattr(import_module(module), attribute))
