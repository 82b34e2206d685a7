# SPDX-License-Identifier: Apache-2.0
"""The kinds of jobs that an agent is to serve, as `mkctl cluster register` and `manifest` name them.

Pure. Names are those of the manager's Configuration: a kind that it declares is served with the same declaration, which
the agent gets in a file, and one of `multiKueue.externalFrameworks` with the plural that is given there. For both the
agent's role is made here; those of shipped kinds are files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import yaml

from multikueue.api.configuration import Configuration
from multikueue.api.constants import BATCH_JOB_FRAMEWORK
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.roles import agent_roles
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import dispatched_integrations
from worker_agent.kinds import served_integrations

_FRAMEWORKS: Final = "--frameworks"
_EXTERNAL: Final = "--external-frameworks"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentKinds:
    """The kinds of one agent; without any it serves its default."""

    frameworks: tuple[str, ...] = ()
    external: tuple[str, ...] = ()
    """As Kind.version.group, with =PLURAL if that is an unusual one."""
    declarations: tuple[JsonObject, ...] = ()
    """The declarations of some of the frameworks."""

    @classmethod
    def chosen(cls, *, frameworks: str = "", external: str = "", configuration: Configuration | None = None) -> Self:
        """The comma-separated kinds of the two flags, each once, with what the manager's Configuration says of them.

        Raises `BadInput` for those that no worker can run, and for what is no such kind.
        """
        configured = Configuration() if configuration is None else configuration
        plurals = {each.name: each.plural for each in configured.multikueue.external_frameworks}
        names = _names(frameworks, flag=_FRAMEWORKS, example=BATCH_JOB_FRAMEWORK)
        of_others = _names(external, flag=_EXTERNAL, example="Pipeline.v1.example.com")
        found = cls(
            frameworks=tuple(name for name in names if name not in plurals),
            external=tuple(
                _with_plural(each, plurals) for each in dict.fromkeys((*_external(names, plurals), *of_others))
            ),
            declarations=tuple(each for each in configured.integrations.declarations if _name_of(each) in names),
        )
        served = {each.framework for each in found._served()}
        left = [name for name in found.frameworks if name not in served]
        if left:
            raise BadInput(f"{_FRAMEWORKS}: jobs of {', '.join(left)} are not sent to workers")
        return found

    def flags(self) -> tuple[tuple[str, str], ...]:
        """The flags that name the kinds, each with its value; none for the agent's default."""
        flags = ((_FRAMEWORKS, self.frameworks), (_EXTERNAL, self.external))
        return tuple((flag, ",".join(names)) for flag, names in flags if names)

    def declared(self) -> str:
        """The file for the agent's flag `--job-kinds`, as YAML; empty if it needs none."""
        return yaml.safe_dump_all(self.declarations, sort_keys=False) if self.declarations else ""

    def roles(self) -> tuple[JsonObject, ...]:
        """The ClusterRoles, with bindings, for the kinds of which there are no files."""
        return tuple(role for each in self._without_files() for role in agent_roles(each.resource))

    def rights(self) -> tuple[str, ...]:
        """What the agent needs on the worker by `roles`, each rule as one line: its verbs and the resource."""
        rules = [rule for role in self.roles() for rule in role.get("rules") or ()]
        return tuple(f"{','.join(rule['verbs'])} {rule['resources'][0]}.{rule['apiGroups'][0]}" for rule in rules)

    def role_files(self) -> tuple[str, ...]:
        """The files with the roles that the agent needs for the shipped kinds, beside its own."""
        integrations, declared = dispatched_integrations(), set(map(_name_of, self.declarations))
        kinds = []
        for name in self.frameworks:
            sent_as = integrations[name].traits.sent_as if name in integrations else None
            if name != BATCH_JOB_FRAMEWORK and name not in declared:
                kinds.append(name.rpartition("/")[2] if sent_as is None else sent_as.kind.lower())
        return tuple(f"deploy/rbac/kinds/{kind}-agent.yaml" for kind in dict.fromkeys(kinds))

    def _served(self) -> tuple[JobIntegration, ...]:
        return served_integrations(self.frameworks, declarations=self.declarations, external=self.external)

    def _without_files(self) -> tuple[JobIntegration, ...]:
        declared = set(map(_name_of, self.declarations))
        named = len(served_integrations(self.frameworks, declarations=self.declarations))
        served = self._served()
        return (*(each for each in served[:named] if each.framework in declared), *served[named:])


def _names(text: str, *, flag: str, example: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if text and not names:
        raise BadInput(f"{flag}: expected names such as {example}, found {excerpt(text)}")
    return names


def _external(names: Sequence[str], plurals: Mapping[str, str]) -> tuple[str, ...]:
    """Those that the Configuration has as external frameworks."""
    return tuple(name for name in names if name in plurals)


def _with_plural(name: str, plurals: Mapping[str, str]) -> str:
    plural = plurals.get(name, "")
    return f"{name}={plural}" if plural else name


def _name_of(declaration: JsonObject) -> str:
    metadata = declaration.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""
