# SPDX-License-Identifier: Apache-2.0
"""Every function of manager and agent that writes to an API server, found in the source.

A new function must be in a course or in the list of functions without a course, or a test fails.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
_FOLDERS: Final = ("manager", "worker_agent", "multikueue/kube")
_VERBS: Final = frozenset({"create", "replace", "patch", "apply", "delete"})
_CLIENT: Final = re.compile(r"(client|hub|worker)$")
_BY_NAME: Final = frozenset({"apply_unless_same", "write_condition"})
WRITERS: Final = frozenset(
    {
        "manager.dispatch.condition_writes.write_active",
        "manager.dispatch.condition_writes.write_condition",
        "manager.workload.status_writer._write",
        "multikueue.kube.rest.patch.apply_unless_same",
    }
)
"""Functions that write for others."""
SENT_BY: Final = {
    "manager.scheduler.scheduler._pend": "manager.scheduler.scheduler._write_reason",
    "manager.scheduler.scheduler._bypass": "manager.scheduler.scheduler._write_reason",
    "manager.workload.status_writer._patch_status": "manager.dispatch.execution._write_status",
}
"""The function by whose name a course records the writes of another."""
_CONTROLLER: Final = "the reconcile fails and is retried with a back-off"
UNPLAYED: Final = {
    "manager.dispatch.execution.execute": _CONTROLLER,
    "manager.dispatch.reported.failure_records.record": f"{_CONTROLLER}; its name is that of the one failure",
    "manager.dispatch.log_relay.request": (f"{_CONTROLLER}; the requests are compared with the assignment again"),
    "manager.dispatch.log_relay._delete": f"{_CONTROLLER}; it is of one uid",
    "manager.dispatch.log_relay._write": f"{_CONTROLLER}; a chunk is written again as long as the agent shows it",
    "manager.dispatch.transport.mailbox_transport.drop": "what no assignment lists is removed in the next round",
    "manager.dispatch.transport.mailbox_transport.put": (
        f"{_CONTROLLER}; an assignment lists what is stored only, and each round compares"
    ),
    "manager.dispatch.transport.push_recovery._reconcile": _CONTROLLER,
    "manager.dispatch.transport.resync._compare": f"{_CONTROLLER}; the next report is compared again",
    "manager.controllers.job_workloads.delete": _CONTROLLER,
    "manager.controllers.job_workloads.own": _CONTROLLER,
    "manager.controllers.job_workloads.resize": f"{_CONTROLLER}; the size of the job is compared again",
    "manager.controllers.elastic_pods._start": f"{_CONTROLLER}; the pods are counted again",
    "manager.controllers.workloads._finish_replaced": _CONTROLLER,
    "manager.scheduler.topology_writes._write": "the Workload is fed to the engine as it is, and decided again",
    "manager.topology.node_failures._remove_unbound": f"{_CONTROLLER}; a pod that is there still is deleted again",
    "manager.topology.node_failures._review": f"{_CONTROLLER}; nodes and pods are compared again",
    "manager.topology.ungater._start": f"{_CONTROLLER}; the pods are counted again",
    "manager.visibility.install._register": "the registration is compared again after 30 s",
    "manager.webhooks.rotation.ensure_namespace": "repeated at start until the hub answers",
    "multikueue.kube.admission_checks._apply": f"{_CONTROLLER}; it runs in processes of others",
    "multikueue.kube.runtime.leader._release": "not retried: the lease expires",
    "multikueue.kube.serving.reviews._ask": (
        "no write: a TokenReview or SubjectAccessReview stores nothing; the answer is 503, and the next request"
        " asks again"
    ),
    "manager.dispatch.checks._write_ability": f"{_CONTROLLER}; the condition is compared with the reports again",
    "worker_agent.local.provisioning._create": f"{_CONTROLLER}; its name is that of the one attempt",
    "worker_agent.local.provisioning._create_template": f"{_CONTROLLER}; its name is that of the one attempt",
    "worker_agent.local.provisioning._delete": f"{_CONTROLLER}; it is of one uid",
    "worker_agent.local.dependencies.sent_objects._create": "tried again with a back-off; the pods of the job wait",
    "worker_agent.local.dependencies.sent_objects._update": (
        "tried again with a back-off; it is guarded by uid and resourceVersion"
    ),
    "worker_agent.local.jobs.adopt": _CONTROLLER,
    "worker_agent.local.jobs.change": f"{_CONTROLLER}; the forwarded fields are compared again",
    "worker_agent.local.queueing.clones._open_gate": _CONTROLLER,
}
"""Functions whose writes no course makes, and how a failed write is retried, known from the code."""


def write_sites() -> frozenset[str]:
    """`module.function` of each function that sends a write, or has another function send it."""
    found: set[str] = set()
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.AsyncFunctionDef) and any(_writes(each) for each in ast.walk(node)):
                    found.add(f"{module}.{node.name}")
    return frozenset(found) - WRITERS


def _writes(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in _BY_NAME
    if not isinstance(node.func, ast.Attribute):
        return False
    receiver = ast.unparse(node.func.value)
    if node.func.attr == "write":
        return receiver.endswith("statuses")
    return node.func.attr in _VERBS and _CLIENT.search(receiver) is not None
