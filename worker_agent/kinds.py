# SPDX-License-Identifier: Apache-2.0
"""The kinds of jobs that an agent is to serve: those of its `--frameworks`, whatever the hub sends.

The same names as in the Configuration of the manager. Kinds that no worker can run for a hub are left out, so that the
list of the manager can be given. Kinds of one's own are read from a file of declarations; those of
`--external-frameworks` are only run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from multikueue.api.codec import documents
from multikueue.api.configuration import ExternalFramework
from multikueue.api.configuration_rules import external_problems
from multikueue.api.constants import BATCH_JOB_FRAMEWORK
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.external import external_integrations
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import known_integrations
from multikueue.jobs.kinds.batch_job import BATCH_JOB

_MAX_BYTES: Final = 1024 * 1024
_EXTERNAL: Final = "--external-frameworks"


def served_integrations(
    frameworks: Sequence[str], *, declarations: Sequence[JsonObject] = (), external: Sequence[str] = ()
) -> tuple[JobIntegration, ...]:
    """The integrations of the frameworks that workers can run, and those of the `external` kinds.

    Raises `BadInput`, for all unknown frameworks at once.
    """
    if not declarations and not external and set(frameworks) == {BATCH_JOB_FRAMEWORK}:
        return (BATCH_JOB,)  # without reading the declarations of all others
    known = known_integrations(declarations)
    unknown = [name for name in dict.fromkeys(frameworks) if name not in known]
    if unknown:
        names = ", ".join(map(excerpt, unknown))
        raise BadInput(f"--frameworks: expected some of {', '.join(sorted(known))}, found {names}")
    found = (known[name] for name in dict.fromkeys(frameworks))
    served = tuple(each for each in found if each.traits.dispatched and each.traits.sent_as is None)
    return (*served, *_external(external, known.values()))


def _external(names: Sequence[str], known: Iterable[JobIntegration]) -> Iterator[JobIntegration]:
    """The kinds of `--external-frameworks`. Raises `BadInput`, for all mistakes at once."""
    frameworks = [ExternalFramework(name=name, plural=plural) for name, _, plural in (n.partition("=") for n in names)]
    problems = [problem for _, problem in external_problems(frameworks)]
    if problems:
        raise BadInput(f"{_EXTERNAL}: {'; '.join(problems)}")
    taken = {(each.resource.group, each.resource.kind): each.framework for each in known}
    for integration in external_integrations(frameworks):
        resource = integration.resource
        framework = taken.get((resource.group, resource.kind))
        if framework is not None:
            raise BadInput(f"{_EXTERNAL}: {resource.kind} of {resource.group} is a job of {framework} already")
        yield integration


def read_declarations(path: Path) -> tuple[JsonObject, ...]:
    """The documents of a file of declarations. Raises `BadInput`."""
    where = f"--job-kinds {path}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{where}: cannot read it: {error.strerror or error}") from error
    if len(data) > _MAX_BYTES:
        raise BadInput(f"{where}: expected at most {_MAX_BYTES} bytes, found {len(data)}")
    return tuple(documents(data, source=where))
