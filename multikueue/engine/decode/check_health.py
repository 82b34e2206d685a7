# SPDX-License-Identifier: Apache-2.0
"""Whether the controller of an AdmissionCheck is alive, and what to do if it is not.

The condition Active belongs to the controller that `spec.controllerName` names; no other writer sets it. A foreign
controller is alive if Active is True for the spec as it is now: an `observedGeneration` of an earlier spec does not
count, no `observedGeneration` does. Our own controllers run in the manager, so their Active always counts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from multikueue.api.constants import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER
from multikueue.api.reasons import ACTIVE_CONDITION
from multikueue.core.conditions import TRUE
from multikueue.core.printable import excerpt
from multikueue.engine.decode import fields

_OWN: Final = frozenset({MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER, "kueue.x-k8s.io/provisioning"})


class ControllerHealth(NamedTuple):
    """Whether a check is active; if not, the problem and the next step as text for users."""

    name: str
    controller: str
    active: bool
    problem: str = ""
    step: str = ""

    @property
    def line(self) -> str:
        """One line with everything that is wrong; empty if nothing is."""
        return "" if self.active else f"AdmissionCheck {self.name} of {self.controller}: {self.problem}; {self.step}"


def is_foreign(controller: str) -> bool:
    """Whether the controller of that name is not part of the manager."""
    return controller not in _OWN


def check_health(source: fields.Source) -> ControllerHealth:
    """The health of an AdmissionCheck object. Raises `BadInput`."""
    check = fields.read(source)
    name, controller = fields.name_of(check), fields.text(fields.mapping(check, "spec"), "controllerName")
    conditions = fields.items(fields.mapping(check, "status"), "conditions")
    active = next((item for item in conditions if fields.text(item, "type") == ACTIVE_CONDITION), None)
    start = f"start or repair the controller that serves controllerName {excerpt(controller)}"
    if active is None:
        problem = "no controller has set the Active condition of the AdmissionCheck"
        return ControllerHealth(name, controller, False, problem, start)
    if fields.text(active, "status") != TRUE:
        reason, message = fields.text(active, "reason"), fields.text(active, "message")
        step = f"correct what the message names, or ask the owner of the controller {excerpt(controller)}"
        return ControllerHealth(name, controller, False, f"the AdmissionCheck is not Active: {reason}: {message}", step)
    seen = fields.integer(active, "observedGeneration")
    generation = fields.integer(fields.mapping(check, "metadata"), "generation")
    if is_foreign(controller) and seen and generation and seen < generation:
        problem = (
            "its controller has not read the AdmissionCheck since it was changed: the Active condition has"
            f" observedGeneration {seen}, the AdmissionCheck has generation {generation}"
        )
        return ControllerHealth(name, controller, False, problem, start)
    return ControllerHealth(name, controller, True)
