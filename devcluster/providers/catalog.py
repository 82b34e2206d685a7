# SPDX-License-Identifier: Apache-2.0
"""The providers of `mkctl` by name; a provider's module is imported when it is selected."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from multikueue.core.errors import BadInput

if TYPE_CHECKING:  # `mkctl up` needs only the names
    from devcluster.providers.provider import ProviderFactory

DEFAULT: Final = "embedded"
PROVIDERS: Final = {
    "embedded": "devcluster.providers.embedded.provider:EmbeddedProvider",
    "binaries": "devcluster.providers.binaries.provider:BinariesProvider",
}


def check(name: str) -> None:
    """Raise `BadInput`, which lists the valid names, unless `name` is one of them."""
    if name not in PROVIDERS:
        raise BadInput(f"unknown provider {name!r}; valid are {', '.join(PROVIDERS)}")


def factory(name: str) -> ProviderFactory:
    """The factory of the provider. Raises `BadInput` as `check` does."""
    check(name)
    module, _, attribute = PROVIDERS[name].partition(":")
    return cast("ProviderFactory", getattr(import_module(module), attribute))
