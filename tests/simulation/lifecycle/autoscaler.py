# SPDX-License-Identifier: Apache-2.0
"""The rules of the lifecycle's state machine that are about capacity.

An autoscaler answers ProvisioningRequests as it likes, administrators edit the config, users and other controllers
delete, hold and occupy the objects of the manager, and the garbage collector comes late.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import rule

from multikueue.api.objects import controller_of
from multikueue.api.resource import POD_TEMPLATES, PROVISIONING_REQUESTS, Resource
from multikueue.core.timestamps import format_time
from multikueue.provisioning.decision import current_request
from multikueue.provisioning.requests import template_name
from tests.simulation.lifecycle.hub import CAPACITY, TEAM, Hub, capacity_config, later
from tests.simulation.lifecycle.world import LifecycleManager

_WHICH = st.integers(0, 9)
_ANSWERS = ("Accepted", "Provisioned", "Provisioned", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked")


class AutoscalerRules:
    """Rules on the hub of a machine."""

    hub: Hub
    manager: LifecycleManager

    @rule(
        which=_WHICH,
        answer=st.sampled_from(_ANSWERS),
        message=st.sampled_from(("", "by the autoscaler")),
        pool=st.sampled_from((None, "p", "no label!")),
    )
    def autoscaler_answers(self, which: int, answer: str, message: str, pool: str | None) -> None:
        """Of a request that the manager has made by then, or of one that it has since forgotten."""
        if message:
            self.manager.settle()
        request = self.request(which)
        if request is None:
            return
        status = request.setdefault("status", {})
        self._set(status, answer, "True", message)
        if answer == "Accepted" and not any(each["type"] == "Provisioned" for each in status["conditions"]):
            self._set(status, "Provisioned", "False", "Capacity is expected soon")
        if pool is not None:
            status["provisioningClassDetails"] = {"Pool": pool}
        self.hub.capacity.touch(PROVISIONING_REQUESTS, request)
        self.hub.capacity.met[answer] = self.hub.capacity.met.get(answer, 0) + 1

    @rule(
        which=_WHICH,
        answers=st.lists(st.sampled_from((*_ANSWERS, "Failed", "Failed")), min_size=1, max_size=5),
        seconds=st.sampled_from((0, 1, 61, 101)),
    )
    def autoscaler_and_manager_take_turns(self, which: int, answers: list[str], seconds: int) -> None:
        """Time enough between two answers for the next attempt, or not."""
        for answer in answers:
            self.autoscaler_answers(which, answer, f"{answer} in turn", "p")
            self.manager.settle()
            self.manager.capacity.check_rest()
            later(self.hub, seconds)

    @rule(which=_WHICH)
    def a_user_deletes_a_request(self, which: int) -> None:
        if request := self.request(which):
            self.hub.capacity.delete(PROVISIONING_REQUESTS, request, format_time(self.hub.now))

    @rule(which=_WHICH, kept=st.booleans())
    def a_finalizer_keeps_a_request(self, which: int, kept: bool) -> None:
        request = self.request(which)
        if request is not None and kept is not bool(request["metadata"].get("finalizers")):
            request["metadata"]["finalizers"] = ["example.com/kept"] if kept else []
            self.hub.capacity.touch(PROVISIONING_REQUESTS, request)

    @rule(which=_WHICH)
    def a_user_deletes_a_template(self, which: int) -> None:
        templates = self.hub.capacity.templates()
        if templates:
            found = templates[which % len(templates)]
            self.hub.capacity.delete(POD_TEMPLATES, found, format_time(self.hub.now))

    @rule()
    def garbage_is_collected(self) -> None:
        owners = {each["metadata"]["uid"] for each in self.hub.workloads.values()}
        self.hub.capacity.collect(owners, format_time(self.hub.now))

    @rule(which=_WHICH, template=st.booleans())
    def another_takes_a_name(self, which: int, template: bool) -> None:
        """What the manager would create next has the name of an object that is not its own."""
        keys = sorted(self.hub.workloads)
        workload = self.hub.workloads[keys[which % len(keys)]] if keys else {}
        for entry in (workload.get("status") or {}).get("admissionChecks") or ():
            if entry["name"] != CAPACITY:
                continue
            name = current_request(workload, entry)
            resource = POD_TEMPLATES if template else PROVISIONING_REQUESTS
            name = template_name(name, "main") if template else name
            if not any(each["metadata"]["name"] == name for each in self._all(resource)):
                self.hub.capacity.add(resource, {"metadata": {"name": name, "namespace": TEAM}, "spec": {}})

    @rule()
    def others_leave(self) -> None:
        for resource in (PROVISIONING_REQUESTS, POD_TEMPLATES):
            for each in self._all(resource):
                if controller_of(each) is None:
                    self.hub.capacity.delete(resource, each, format_time(self.hub.now))

    @rule(
        class_name=st.sampled_from(("check-capacity.autoscaling.x-k8s.io", "queued.example.com")),
        retries=st.integers(0, 2),
        managed=st.sampled_from(((), (), ("cpu",), ("example.com/gpu",))),
    )
    def change_config(self, class_name: str, retries: int, managed: tuple[str, ...]) -> None:
        self.hub.configs[CAPACITY] = capacity_config(class_name, retries=retries, managed=managed)

    @rule()
    def config_is_deleted(self) -> None:
        self.hub.configs.pop(CAPACITY, None)

    @rule()
    def informers_catch_up(self) -> None:
        self.manager.capacity.catch_up()

    def request(self, which: int) -> Any:
        """One of the requests of managers; None when there is none."""
        found = [each for each in self.hub.capacity.requests() if controller_of(each) is not None]
        return found[which % len(found)] if found else None

    def _all(self, resource: Resource) -> list[Any]:
        return self.hub.capacity.requests() if resource is PROVISIONING_REQUESTS else self.hub.capacity.templates()

    def _set(self, status: Any, kind: str, value: str, message: str) -> None:
        others = [each for each in status.get("conditions") or () if each["type"] != kind]
        time = format_time(self.hub.now)
        new = {"type": kind, "status": value, "reason": kind, "message": message, "lastTransitionTime": time}
        status["conditions"] = [*others, new]
