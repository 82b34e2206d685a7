# SPDX-License-Identifier: Apache-2.0
"""The identity of an object inside one cluster and one kind."""

from __future__ import annotations

from typing import NamedTuple, Self


class Key(NamedTuple):
    """Namespace and name; the namespace of a cluster-scoped object is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @classmethod
    def parse(cls, text: str) -> Self:
        """The key that `str()` printed."""
        namespace, _, name = text.rpartition("/")
        return cls(namespace, name)
