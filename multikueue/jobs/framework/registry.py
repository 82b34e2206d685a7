# SPDX-License-Identifier: Apache-2.0
"""The job integrations, by framework name and by owner reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Self

from multikueue.api import featuregates
from multikueue.api.configuration import Configuration, Integrations
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.mistakes import DeclarationMistakes
from multikueue.jobs.framework.capabilities import ForwardingKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.traits import Hold
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.jobs.kinds.deployment import DEPLOYMENT
from multikueue.jobs.kinds.leader_worker_set import LEADER_WORKER_SET
from multikueue.jobs.kinds.pod import BARE_POD
from multikueue.jobs.kinds.stateful_set import STATEFUL_SET

CUSTOM_JOBS_GATE: Final = "MultiKueueAdaptersForCustomJobs"
"""The feature gate of `multiKueue.externalFrameworks`."""
FORWARDING_GATE: Final = "MultiKueueRemoteSpecSync"
"""The feature gate of changes of running jobs that are forwarded to their workers."""
INTEGRATIONS: Final[Mapping[str, JobIntegration]] = {
    each.framework: each for each in (BATCH_JOB, BARE_POD, DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET)
}
"""Those that are not declared."""


def known_integrations(declarations: Sequence[JsonObject] = ()) -> Mapping[str, JobIntegration]:
    """Every integration, with the declarations of a Configuration. Raises `DeclarationMistakes`."""
    from multikueue.jobs.declared.shipped import configured_integrations  # reads YAML that `mkctl simulate` needs not

    return {**configured_integrations(declarations), **INTEGRATIONS}


def dispatched_integrations(declarations: Sequence[JsonObject] = ()) -> Mapping[str, JobIntegration]:
    """Those of `known_integrations` whose jobs workers can run. Raises `DeclarationMistakes`."""
    known = known_integrations(declarations)
    return {name: integration for name, integration in known.items() if integration.traits.dispatched}


def framework_problems(integrations: Integrations) -> tuple[tuple[str, str], ...]:
    """What is wrong with the declarations of a Configuration, else with its frameworks, each with its path."""
    try:
        problem = unsupported(integrations.frameworks, known_integrations(integrations.declarations))
    except DeclarationMistakes as error:
        return tuple((path, text) for path, _, text in (each.partition(": ") for each in error.problems))
    return (("integrations.frameworks", problem),) if problem else ()


def unsupported(frameworks: Iterable[str], known: Mapping[str, JobIntegration] = INTEGRATIONS) -> str:
    """The frameworks without an integration, as one sentence; empty if there are none."""
    unknown = [framework for framework in dict.fromkeys(frameworks) if framework not in known]
    if not unknown:
        return ""
    verb = "is" if len(unknown) == 1 else "are"
    names = ", ".join(excerpt(framework) for framework in unknown)
    return f"{names} {verb} not supported by this manager, only {', '.join(sorted(known))}"


class JobRegistry:
    """The enabled integrations, by which jobs are queued, and the kinds that are only sent to workers."""

    __slots__ = ("_by_kind", "_external", "external")

    def __init__(
        self,
        frameworks: Iterable[str],
        *,
        external: Iterable[str] = (),
        sent_external: Iterable[JobIntegration] = (),
        known: Mapping[str, JobIntegration] = INTEGRATIONS,
        gate: Gate = featuregates.default,
    ) -> None:
        """`external` are kinds that another controller queues, as Kind.version.group.

        `sent_external` are such kinds whose jobs workers run; what they own here is queued all the same.

        Raises `BadInput`, which names every framework without an integration, or whose feature gate is off.
        """
        frameworks = tuple(frameworks)
        problem = unsupported(frameworks, known)
        if problem:
            raise BadInput(f"integrations.frameworks: {problem}")
        self._by_kind: dict[tuple[str, str], JobIntegration] = {}
        for framework in _with_needed(frameworks, known):
            integration = known[framework]
            needed = integration.traits.feature_gate
            if needed and not gate(needed):
                raise BadInput(
                    f"integrations.frameworks: {excerpt(framework)} needs the feature gate {needed}, which is off"
                )
            self._by_kind[integration.resource.group, integration.resource.kind] = integration
        self._external = frozenset(_external_kind(name) for name in external)
        for name in external:
            queued = self._by_kind.get(_external_kind(name))
            if queued is not None and queued.traits.hold is Hold.PODS:
                raise BadInput(
                    f"integrations.externalFrameworks: {excerpt(name)} is queued by the framework"
                    f" {queued.framework} already; remove one of the two"
                )
        self.external: tuple[JobIntegration, ...] = tuple(sent_external)
        """Those whose Workloads another controller makes, and whose jobs workers run."""
        taken = {(each.resource.group, each.resource.kind): each for each in known.values()}
        for integration in self.external:
            kind = integration.resource
            other = taken.get((kind.group, kind.kind))
            if other is not None:
                raise BadInput(
                    f"multiKueue.externalFrameworks: {kind.kind}.{kind.version}.{kind.group} is a kind of the framework"
                    f" {other.framework}; name that under integrations.frameworks, or remove its declaration"
                )

    @classmethod
    def configured(cls, configuration: Configuration) -> Self:
        """The integrations that a Configuration enables. Raises `BadInput`."""
        integrations = configuration.integrations
        known = known_integrations(integrations.declarations)
        return cls(
            integrations.frameworks,
            external=integrations.external_frameworks,
            sent_external=_sent_external(configuration),
            known=known if configuration.gate(FORWARDING_GATE) else _without_forwarding(known),
            gate=configuration.gate,
        )

    def for_kind(self, api_version: str, kind: str) -> JobIntegration | None:
        """The enabled integration of the kind, in any version; None if there is none."""
        group, _, _ = api_version.rpartition("/")
        return self._by_kind.get((group, kind))

    def sent_kind(self, api_version: str, kind: str) -> JobIntegration | None:
        """As `for_kind`, also of a kind that another controller queues and workers run."""
        group, _, _ = api_version.rpartition("/")
        of_others = (each for each in self.external if (each.resource.group, each.resource.kind) == (group, kind))
        return self.for_kind(api_version, kind) or next(of_others, None)

    def is_external(self, api_version: str, kind: str) -> bool:
        """Whether another controller queues that kind, and with it what its objects own."""
        group, _, _ = api_version.rpartition("/")
        return (group, kind) in self._external

    @property
    def dispatched(self) -> tuple[JobIntegration, ...]:
        """The integrations that workers serve."""
        return tuple(each for each in self.followed if each.traits.dispatched and each.traits.sent_as is None)

    @property
    def followed(self) -> tuple[JobIntegration, ...]:
        """Every kind whose objects are watched."""
        return (*self, *self.external)

    def __iter__(self) -> Iterator[JobIntegration]:
        return iter(self._by_kind.values())


def _without_forwarding(known: Mapping[str, JobIntegration]) -> Mapping[str, JobIntegration]:
    return {
        framework: each.without_forwarding() if isinstance(each, ForwardingKind) and each.forwards() else each
        for framework, each in known.items()
    }


def _sent_external(configuration: Configuration) -> tuple[JobIntegration, ...]:
    frameworks = configuration.multikueue.external_frameworks
    if not frameworks:
        return ()
    if not configuration.gate(CUSTOM_JOBS_GATE):
        raise BadInput(f"multiKueue.externalFrameworks: needs the feature gate {CUSTOM_JOBS_GATE}, which is off")
    from multikueue.jobs.declared.external import external_integrations  # most hubs have none

    return external_integrations(frameworks)


def _with_needed(frameworks: Sequence[str], known: Mapping[str, JobIntegration]) -> tuple[str, ...]:
    """The frameworks, and those that are enabled together with them."""
    found = dict.fromkeys(frameworks)
    for framework in frameworks:
        found.update(dict.fromkeys(name for name in known[framework].traits.needs if name in known))
    return tuple(found)


def _external_kind(name: str) -> tuple[str, str]:
    """The group and kind of a Kind.version.group. Raises `BadInput`."""
    kind, _, rest = name.partition(".")
    version, _, group = rest.partition(".")
    if not (kind and version and group):
        raise BadInput(f"integrations.externalFrameworks: expected Kind.version.group, found {excerpt(name)}")
    return group, kind
