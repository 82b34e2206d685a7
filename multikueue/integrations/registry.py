# SPDX-License-Identifier: Apache-2.0
"""Which integration takes care of which kind, by framework name and by owner reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.integrations.batch_job import BATCH_JOB
from multikueue.integrations.protocol import JobIntegration

INTEGRATIONS: Final[Mapping[str, JobIntegration]] = {BATCH_JOB.framework: BATCH_JOB}


class Registry:
    """The enabled integrations."""

    __slots__ = ("_by_kind",)

    def __init__(self, frameworks: Iterable[str]) -> None:
        """Raises `BadInput` for a framework that there is no integration of."""
        self._by_kind: dict[tuple[str, str], JobIntegration] = {}
        for framework in frameworks:
            integration = INTEGRATIONS.get(framework)
            if integration is None:
                known = ", ".join(sorted(INTEGRATIONS))
                raise BadInput(f"integrations.frameworks: {framework!r} is not one of {known}")
            self._by_kind[integration.resource.group, integration.resource.kind] = integration

    def for_kind(self, api_version: str, kind: str) -> JobIntegration | None:
        """The integration of the kind, in whatever version; None when it has none that is enabled."""
        group, _, _ = api_version.rpartition("/")
        return self._by_kind.get((group, kind))

    def __iter__(self) -> Iterator[JobIntegration]:
        return iter(self._by_kind.values())
