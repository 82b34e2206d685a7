# SPDX-License-Identifier: Apache-2.0
"""An admission check: the Workloads of a namespace may not run for more CPUs than ConfigMap `budget` there allows.

`python budget_check.py` runs it with the kubeconfig of the environment, or with the service account of its pod.
"""

from __future__ import annotations

import logging

import anyio

from multikueue.api.constants import CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CONFIG_MAPS, WORKLOADS
from multikueue.core.backoff import Backoff
from multikueue.core.conditions import is_true_in
from multikueue.core.quantity import Quantity
from multikueue.kube.admission_checks import CheckAnswer, CheckController, CheckQuestion, reserved_quota
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient

CONTROLLER = "example.com/budget"
NONE = Quantity.of(0)
PAUSES = Backoff(base=10, factor=2, cap=600)


class BudgetCheck:
    """Ready within the budget, Retry while others use it up, Rejected if the Workload alone is larger."""

    def __init__(self, client: KubeClient, *, backoff: Backoff = PAUSES) -> None:
        self._backoff = backoff
        self.controller = CheckController(client, CONTROLLER, self.decide, follow=(CONFIG_MAPS,))

    async def decide(self, question: CheckQuestion) -> CheckAnswer:
        budget = self.controller.find(CONFIG_MAPS, "budget", namespace=question.namespace)
        if budget is None:
            return CheckAnswer.pending(f"namespace {question.namespace} has no ConfigMap budget")
        limit = Quantity.parse((budget.get("data") or {}).get("cpu", "0"))
        wanted = reserved_quota(question.workload).get("cpu", NONE)
        if limit < wanted:
            return CheckAnswer.rejected(f"it requests {wanted} CPUs, and the budget is {limit} in all")
        used = NONE
        for other in self.controller.objects(WORKLOADS, namespace=question.namespace):
            if self.is_counted(other, question.name):
                used += reserved_quota(other).get("cpu", NONE)
        if limit < used + wanted:
            message = f"it requests {wanted} CPUs, and {used} of the budget of {limit} are used"
            return CheckAnswer.retry(message, attempt=question.attempt, backoff=self._backoff)
        return CheckAnswer.ready(f"{used + wanted} of the budget of {limit} CPUs are used")

    def is_counted(self, workload: JsonObject, check: str) -> bool:
        status: JsonObject = workload.get("status") or {}
        entries = status.get("admissionChecks") or ()
        granted = any(entry["name"] == check and entry["state"] == CheckState.READY for entry in entries)
        return granted and not is_true_in(status, "Finished")


async def main() -> None:
    logging.basicConfig(level=logging.INFO)
    async with KubeClient(credentials.load(), user_agent="budget-check") as client:
        await BudgetCheck(client).controller.run()


if __name__ == "__main__":
    anyio.run(main)
