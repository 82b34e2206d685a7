# SPDX-License-Identifier: Apache-2.0
"""The generic adapter of `multiKueue.externalFrameworks`: kinds whose Workloads another controller makes.

Their objects are sent to workers and their whole status is shown; pod sets, start and stop belong to that controller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from multikueue.api.configuration import ExternalFramework
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.declaration import API_VERSION, JOB_KIND
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.pod_set_places import PodSetPlace
from multikueue.jobs.declared.reading import declaration_of
from multikueue.jobs.framework.traits import Hold

_MANAGED_BY: Final = "$.spec.managedBy"
_WITH_ES: Final = ("s", "x", "z", "ch", "sh")
_VOWELS: Final = "aeiou"


class ExternalIntegration(DeclaredIntegration):
    """A kind of which only `spec.managedBy` is known."""

    def places(self, job: JsonObject) -> tuple[PodSetPlace, ...]:
        """None: they are in the Workload that the other controller makes."""
        return ()


def external_integrations(frameworks: Iterable[ExternalFramework]) -> tuple[ExternalIntegration, ...]:
    """The integrations of that setting. Raises `BadInput`."""
    return tuple(external_integration(each.name, plural=each.plural) for each in frameworks)


def external_integration(name: str, *, plural: str = "") -> ExternalIntegration:
    """The integration of a Kind.version.group; without `plural` that is the usual one. Raises `BadInput`."""
    kind, _, rest = name.partition(".")
    version, _, group = rest.partition(".")
    if not (kind and version and group):
        raise BadInput(f"multiKueue.externalFrameworks: expected Kind.version.group, found {excerpt(name)}")
    document: JsonObject = {
        "apiVersion": API_VERSION,
        "kind": JOB_KIND,
        "metadata": {"name": f"{group}/{kind.lower()}"},
        "spec": {
            "resource": {"group": group, "versions": [version], "kind": kind, "plural": plural or usual_plural(kind)},
            "hold": str(Hold.PODS),
            "managedBy": {"path": _MANAGED_BY},
            "podSets": [{"name": "main", "template": "$.spec.template"}],
        },
    }
    return ExternalIntegration(declaration_of(document, origin=f"multiKueue.externalFrameworks: {name}"))


def usual_plural(kind: str) -> str:
    """The resource of a kind, as nearly every CustomResourceDefinition names it: in lower case, in the plural."""
    name = kind.lower()
    if name.endswith(_WITH_ES):
        return f"{name}es"
    if name.endswith("y") and name[-2:-1] not in _VOWELS:
        return f"{name[:-1]}ies"
    return f"{name}s"
