# SPDX-License-Identifier: Apache-2.0
"""The workloads that claim devices: which name a template, and with which contents each was admitted.

Whoever may write templates can replace one by another of the same name. New pods of a workload that holds quota would
claim what the new one says, so both are compared, class by class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from multikueue.api.reasons import WorkloadCondition
from multikueue.core.keys import Key
from multikueue.engine import messages
from multikueue.engine.devices.claims import ClaimTemplate
from multikueue.engine.workloads import Workload


class Claimants:
    """Those that have not finished; `templates` are the ones that there are now."""

    def __init__(self, templates: Mapping[Key, ClaimTemplate]) -> None:
        self._templates = templates
        self._named: dict[Key, tuple[Key, ...]] = {}
        self._of: dict[Key, set[Key]] = {}
        self._admitted: dict[Key, dict[Key, ClaimTemplate | None]] = {}
        """With which templates each was admitted; None for one that was replaced before it was seen."""
        self._found: dict[Key, datetime | None] = {}
        """When those were admitted that another manager has admitted."""

    def set(self, workload: Workload) -> None:
        """A workload was created or changed."""
        named = _templates_of(workload)
        if named != self._named.get(workload.key, ()):
            self._forget_names(workload.key)
            if named:
                self._named[workload.key] = named
            for template in named:
                self._of.setdefault(template, set()).add(workload.key)

    def remove(self, workload: Key) -> None:
        """It has finished, or was deleted."""
        self._forget_names(workload)
        self.release(workload)

    def of(self, template: Key) -> Collection[Key]:
        """The workloads that name a template."""
        return tuple(self._of.get(template, ()))

    def admit(self, workload: Key) -> None:
        """It is admitted with the templates as they are now."""
        if names := self._named.get(workload):
            found = {name: self._templates.get(name) for name in names}
            self._admitted[workload] = {name: template for name, template in found.items() if template is not None}

    def find_admitted(self, workload: Workload, holds: Callable[[Workload], bool]) -> None:
        """It holds quota; templates that are seen for the first time are taken as those that it was admitted with.

        If another manager has admitted it, those that are younger than the reservation were replaced since: they are
        taken if `holds`, what it holds being enough for them, and else what they were is unknown.
        """
        key = workload.key
        if key not in self._named:
            return
        if key not in self._admitted:
            reserved = workload.condition(WorkloadCondition.QUOTA_RESERVED)
            self._found[key] = None if reserved is None else reserved.last_transition_time
        known, since = self._admitted.setdefault(key, {}), self._found.get(key)
        for name in self._named[key]:
            template = self._templates.get(name)
            if template is not None and name not in known:
                known[name] = None if _is_younger(template, since) and not holds(workload) else template

    def release(self, workload: Key) -> None:
        """It holds no quota any more."""
        self._admitted.pop(workload, None)
        self._found.pop(workload, None)

    def grown(self, workload: Key) -> str:
        """Why its next pods would claim more devices than it was admitted with; empty if not.

        A template that is gone lets no pod be created. What is unknown is less than anything.
        """
        for name, before in self._admitted.get(workload, {}).items():
            now = self._templates.get(name)
            if now is None or now == before:
                continue
            found = _more(now, before)
            if found:
                return messages.claims_grown(name.name, found)
        return ""

    def _forget_names(self, workload: Key) -> None:
        for template in self._named.pop(workload, ()):
            claimants = self._of[template]
            claimants.discard(workload)
            if not claimants:
                del self._of[template]


def _is_younger(template: ClaimTemplate, since: datetime | None) -> bool:
    return since is not None and template.created is not None and template.created > since


def _templates_of(workload: Workload) -> tuple[Key, ...]:
    names = [claim.template for pod_set in workload.pod_sets for claim in pod_set.shape.claims if claim.template]
    return tuple(Key(workload.key.namespace, name) for name in dict.fromkeys(names))


def _more(now: ClaimTemplate, before: ClaimTemplate | None) -> str:
    for request in now.requests:
        if request.problem:
            return f"request {request.name}: {request.problem}"
    former = {} if before is None else before.devices()
    for name, count in now.devices().items():
        if count > former.get(name, 0):
            return messages.devices_grown(name, count=count, before=former.get(name, 0), known=before is not None)
    return ""
