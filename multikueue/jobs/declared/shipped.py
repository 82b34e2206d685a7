# SPDX-License-Identifier: Apache-2.0
"""The declared kinds: those that are shipped as YAML beside the code, and declarations of an administrator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from multikueue.api.constants import LEADER_WORKER_SET_FRAMEWORK
from multikueue.api.objects import JsonObject
from multikueue.jobs.declared.declaration import JobKindDeclaration
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.mistakes import DeclarationMistakes
from multikueue.jobs.declared.reading import declaration_of, read_declaration
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.kinds.app_wrapper import AppWrapperIntegration
from multikueue.jobs.kinds.ray import RayIntegration
from multikueue.jobs.kinds.spark_application import SparkIntegration
from multikueue.jobs.kinds.train_job import TrainJobIntegration

_FOLDER: Final = "multikueue.jobs.kinds"
_DECLARATIONS: Final = "integrations.declarations"
_OTHER_KINDS: Final = {
    ("batch", "Job"): "batch/job",
    ("apps", "Deployment"): "deployment",
    ("apps", "StatefulSet"): "statefulset",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): LEADER_WORKER_SET_FRAMEWORK,
}
"""Kinds with an integration that is not declared."""
_WITH_PYTHON: Final[Mapping[str, type[DeclaredIntegration]]] = {
    "ray.io/rayjob": RayIntegration,
    "ray.io/raycluster": RayIntegration,
    "ray.io/rayservice": RayIntegration,
    "workload.codeflare.dev/appwrapper": AppWrapperIntegration,
    "trainer.kubeflow.org/trainjob": TrainJobIntegration,
    "sparkoperator.k8s.io/sparkapplication": SparkIntegration,
}
"""Shipped kinds whose declaration does not reach everything; a declaration of an administrator is used alone."""


def declared_integrations(declarations: Iterable[JobKindDeclaration] = ()) -> Mapping[str, JobIntegration]:
    """The declared kinds by framework; a declaration of an administrator replaces the shipped one of its name."""
    found: dict[str, JobIntegration] = dict(_shipped())
    found.update((each.metadata.name, DeclaredIntegration(each)) for each in declarations)
    return found


def configured_integrations(documents: Sequence[JsonObject]) -> Mapping[str, JobIntegration]:
    """`declared_integrations` with the `integrations.declarations` of a Configuration.

    Raises `DeclarationMistakes` with all mistakes of all of them, each with its path in the Configuration.
    """
    found: dict[str, JobKindDeclaration] = {}
    problems: list[str] = []
    taken = {(each.resource.group, each.resource.kind): name for name, each in _shipped().items()} | _OTHER_KINDS
    for index, document in enumerate(documents):
        at = f"{_DECLARATIONS}[{index}]"
        try:
            declaration = declaration_of(document, origin=at)
        except DeclarationMistakes as error:
            problems += [f"{at}.{problem}" for problem in error.problems]
            continue
        name, resource = declaration.metadata.name, declaration.spec.resource
        if name in found:
            problems.append(f"{at}.metadata.name: {name} is declared twice")
        other = taken.setdefault((resource.group, resource.kind), name)
        if other != name:
            problems.append(f"{at}.spec.resource: {resource.kind} of {resource.group} is a job of {other} already")
        found[name] = declaration
    if problems:
        raise DeclarationMistakes("configuration", tuple(problems))
    return declared_integrations(found.values())


@cache
def _shipped() -> Mapping[str, JobIntegration]:
    found: dict[str, JobIntegration] = {}
    for file in sorted(files(_FOLDER).iterdir(), key=lambda each: each.name):
        if file.name.endswith(".yaml"):
            declaration = read_declaration(file.read_bytes(), origin=file.name)
            name = declaration.metadata.name
            found[name] = _WITH_PYTHON.get(name, DeclaredIntegration)(declaration)
    return MappingProxyType(found)
