# SPDX-License-Identifier: Apache-2.0
"""Which kinds of jobs a simulation has, and why others have no Workload.

Without a Configuration every kind that is shipped is served; with one those that a hub with it serves. Kinds of one's
own come from the Configuration or from `JobKind` documents among the manifests. The shipped declarations are read when
the first object of a declared kind is met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from multikueue.api import featuregates
from multikueue.api.configuration_rules import FRAMEWORKS
from multikueue.api.constants import MANAGED_LABEL, MANAGED_LABEL_VALUE, QUEUE_NAME_LABEL
from multikueue.api.defaulting import JobSurroundings, is_queued
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.core.selectors import LabelSelector
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import INTEGRATIONS, known_integrations
from multikueue.jobs.framework.traits import Hold

if TYPE_CHECKING:
    from multikueue.api.configuration import Configuration
    from multikueue.simulation.manifests import Manifest

NO_INTEGRATION: Final = "no integration supports this kind of job, so no Workload is created for it"
_DECLARATION: Final = ("multikueue.io", "JobKind")
_WRITTEN: Final = {(each.resource.group, each.resource.kind): each for each in INTEGRATIONS.values()}
_SHIPPED: Final = frozenset(FRAMEWORKS)


class SimulatedKinds:
    """The integrations by group and kind."""

    def __init__(
        self,
        *,
        frameworks: Sequence[str] | None = None,
        external: Sequence[str] = (),
        declarations: Sequence[JsonObject] = (),
        given: Iterable[Manifest] = (),
        gate: Gate = featuregates.default,
        manage_unqueued: bool = False,
        namespaces: LabelSelector | None = None,
    ) -> None:
        """`frameworks` and `external` are those of a Configuration, None without one; `given` are JobKind documents.

        `namespaces` selects those whose jobs are managed, all without it. Raises `BadInput` for a declaration with
        mistakes, each with its path.
        """
        self._frameworks = frameworks
        self._external = {_external(name) for name in external}
        self._declarations = declarations
        self._gate = gate
        self.manage_unqueued = manage_unqueued
        self._namespaces = namespaces
        self._given: dict[str, JobIntegration] = {}
        if declarations:
            known_integrations(declarations)
        for manifest in given:
            self._add(manifest)

    @classmethod
    def configured(cls, configuration: Configuration, given: Iterable[Manifest] = ()) -> SimulatedKinds:
        """The kinds of a hub with that Configuration, and the given ones. Raises `BadInput`."""
        from multikueue.api.selector import core_selector

        integrations, sent = configuration.integrations, configuration.multikueue.external_frameworks
        return cls(
            frameworks=integrations.frameworks,
            external=(*integrations.external_frameworks, *(each.name for each in sent)),
            declarations=integrations.declarations,
            given=given,
            gate=configuration.gate,
            manage_unqueued=configuration.manage_jobs_without_queue_name,
            namespaces=core_selector(configuration.managed_jobs_namespace_selector),
        )

    def integration(self, group: str, kind: str) -> JobIntegration | None:
        """The integration of a kind; None if there is none, or it is not enabled."""
        found = self._find(group, kind)
        return found if found is not None and not self._disabled(found) else None

    def why_not(self, group: str, kind: str) -> str:
        """Why a kind has no integration."""
        found = self._find(group, kind)
        if (group, kind) in self._external:
            return "another controller queues this kind (externalFrameworks)"
        return NO_INTEGRATION if found is None else self._disabled(found) or NO_INTEGRATION

    def manages(self, namespace_labels: Mapping[str, str]) -> bool:
        """Whether jobs of a namespace with these labels are managed."""
        return self._namespaces is None or self._namespaces.matches(namespace_labels)

    def is_job(self, obj: JsonObject, integration: JobIntegration, surroundings: JobSurroundings) -> bool:
        """Whether an object of the kind is a job: Pods are only when they are queued."""
        if not integration.traits.needs_managed_label:
            return True
        metadata: JsonObject = obj.get("metadata") or {}
        labels: JsonObject = metadata.get("labels") or {}
        if labels.get(MANAGED_LABEL) == MANAGED_LABEL_VALUE:
            return True
        if metadata.get("uid"):
            return False  # the webhook has seen it, and did not set the label
        if self._frameworks is None and QUEUE_NAME_LABEL not in labels:
            return False
        return is_queued(obj, surroundings)

    def _find(self, group: str, kind: str) -> JobIntegration | None:
        given = next((each for each in self._given.values() if _kind_of(each) == (group, kind)), None)
        if given is not None:
            return given
        written = _WRITTEN.get((group, kind))
        if written is not None:
            return written
        if not self._declarations and f"{group}/{kind}".lower() not in _SHIPPED:
            return None
        return self._declared.get((group, kind))

    @cached_property
    def _declared(self) -> Mapping[tuple[str, str], JobIntegration]:
        replaced = self._given.keys()
        known = known_integrations(self._declarations)
        return {_kind_of(each): each for name, each in known.items() if name not in replaced}

    def _disabled(self, integration: JobIntegration) -> str:
        """Why the integration is not enabled; empty if it is."""
        name = integration.framework
        if integration.traits.hold is Hold.PODS:
            return "its pods are queued instead of it"
        if self._frameworks is None or name in self._given:
            return ""
        if name not in self._frameworks and not any(name in self._needed_by(each) for each in self._frameworks):
            return f"its framework {name} is not in integrations.frameworks of the Configuration"
        gate = integration.traits.feature_gate
        if gate and not self._gate(gate):
            return f"its framework {name} needs the feature gate {gate}, which is off"
        return ""

    def _needed_by(self, framework: str) -> Sequence[str]:
        """The frameworks that are enabled together with that one."""
        if framework in INTEGRATIONS:
            return INTEGRATIONS[framework].traits.needs
        found = next((each for each in self._declared.values() if each.framework == framework), None)
        return () if found is None else found.traits.needs

    def _add(self, manifest: Manifest) -> None:
        from multikueue.jobs.declared.integration import DeclaredIntegration
        from multikueue.jobs.declared.reading import declaration_of

        made = DeclaredIntegration(declaration_of(manifest.obj, origin=str(manifest)))
        other = self._find(*_kind_of(made))
        if other is not None and other.framework != made.framework:
            raise BadInput(
                f"{manifest}: spec.resource: {made.resource.kind} of {made.resource.group or 'the core group'} is a job"
                f" of {other.framework} already"
            )
        if made.framework in self._given:
            raise BadInput(f"{manifest}: metadata.name: {made.framework} is declared twice")
        self._given[made.framework] = made


def is_declaration(manifest: Manifest) -> bool:
    """Whether a manifest declares a kind of jobs."""
    return (manifest.group, manifest.kind) == _DECLARATION


def unsupported_version(version: object, integration: JobIntegration) -> str:
    """The message for a job of a version that its integration does not read."""
    resource = integration.resource
    return f"unsupported {resource.kind} version {excerpt(version)}; use {resource.api_version}"


def _kind_of(integration: JobIntegration) -> tuple[str, str]:
    return integration.resource.group, integration.resource.kind


def _external(name: str) -> tuple[str, str]:
    kind, _, rest = name.partition(".")
    return rest.partition(".")[2], kind
