# SPDX-License-Identifier: Apache-2.0
"""The messages in the source, as templates with `<name>` for each value that is filled in.

Two ways find them. In the modules of `MESSAGE_MODULES` every string of three words or more is a message, except
docstrings, log lines and help texts. In the folders of `CALL_FOLDERS` the strings in the calls of `CALLS` and in
exceptions that are raised are messages, with the local variables and constants of the module that these name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

MESSAGE_MODULES: Final = (
    "manager/app.py",
    "manager/cache/quarantine_events.py",
    "manager/cache/queue_targets.py",
    "manager/controllers/job_decision.py",
    "manager/controllers/job_matching.py",
    "manager/controllers/job_progress.py",
    "manager/controllers/job_workloads.py",
    "manager/controllers/jobs.py",
    "manager/controllers/queue_hints.py",
    "manager/controllers/suspended_jobs.py",
    "manager/controllers/workload_decision.py",
    "manager/controllers/workload_removal.py",
    "manager/controllers/workloads.py",
    "manager/dispatch/checks.py",
    "manager/dispatch/clusters.py",
    "manager/dispatch/condition_writes.py",
    "manager/dispatch/execution.py",
    "manager/dispatch/reported/failure_records.py",
    "manager/dispatch/log_relay.py",
    "manager/dispatch/quota_automation.py",
    "manager/dispatch/transport/kubeconfigs.py",
    "manager/dispatch/transport/mailboxes.py",
    "manager/dispatch/transport/push_clusters.py",
    "manager/dispatch/transport/push_hosts.py",
    "manager/owners/running_pods.py",
    "manager/provisioning/execution.py",
    "manager/registration/approval.py",
    "manager/registration/controller.py",
    "manager/scheduler/admission_writes.py",
    "manager/scheduler/preemption_report.py",
    "manager/scheduler/scheduler.py",
    "manager/visibility/api.py",
    "manager/visibility/install.py",
    "manager/visibility/serving.py",
    "manager/webhooks/access.py",
    "manager/webhooks/certificate_files.py",
    "manager/webhooks/external_kinds.py",
    "manager/webhooks/handlers.py",
    "manager/webhooks/owner_rights.py",
    "manager/webhooks/resizes.py",
    "manager/webhooks/review.py",
    "manager/webhooks/serving.py",
    "manager/workload/changes.py",
    "manager/workload/status.py",
    "manager/workload/transitions.py",
    "multikueue/api/configuration_rules.py",
    "multikueue/api/names.py",
    "multikueue/api/featuregates.py",
    "multikueue/dispatch/dispatchers/capacity.py",
    "multikueue/dispatch/dispatchers/cluster_capacity.py",
    "multikueue/dispatch/dispatchers/queue_fit.py",
    "multikueue/dispatch/hub/availability.py",
    "multikueue/dispatch/hub/health.py",
    "multikueue/dispatch/hub/messages.py",
    "multikueue/dispatch/hub/nomination.py",
    "multikueue/dispatch/hub/plan.py",
    "multikueue/dispatch/hub/preemption_gates.py",
    "multikueue/dispatch/hub/replicas.py",
    "multikueue/dispatch/hub/waits.py",
    "multikueue/dispatch/worker/dependencies.py",
    "multikueue/dispatch/sending/sent_references.py",
    "multikueue/dispatch/sending/sending_policy.py",
    "multikueue/dispatch/policy/dispatch_policy.py",
    "multikueue/dispatch/policy/pod_security.py",
    "multikueue/dispatch/protocol/queue_quota.py",
    "multikueue/dispatch/protocol/worker_rights.py",
    "multikueue/dispatch/worker/assignment_state.py",
    "multikueue/engine/cycle/cycle.py",
    "multikueue/engine/cycle/nomination.py",
    "multikueue/engine/engine.py",
    "multikueue/engine/flavorassigner/assigner.py",
    "multikueue/engine/flavorassigner/eligibility.py",
    "multikueue/engine/lifecycle.py",
    "multikueue/engine/messages.py",
    "multikueue/engine/pod_requests.py",
    "multikueue/engine/cycle/topologies.py",
    "multikueue/engine/states.py",
    "multikueue/engine/topology/placer.py",
    "multikueue/engine/topology/requests.py",
    "manager/scheduler/topology_writes.py",
    "manager/topology/node_failures.py",
    "multikueue/engine/workload_conditions.py",
    "multikueue/jobs/framework/pod_set_differences.py",
    "multikueue/jobs/framework/registry.py",
    "multikueue/jobs/kinds/pod.py",
    "multikueue/jobs/kinds/pod_group.py",
    "multikueue/jobs/kinds/pod_writes.py",
    "multikueue/provisioning/messages.py",
    "worker_agent/creation.py",
    "worker_agent/local/remote_group.py",
    "worker_agent/local/provisioning.py",
    "worker_agent/local/boundary.py",
    "worker_agent/local/fencing.py",
    "worker_agent/local/log_requests.py",
    "worker_agent/local/obstacles.py",
    "worker_agent/local/dependencies/job_objects.py",
    "worker_agent/local/dependencies/sent_objects.py",
    "worker_agent/local/queueing/clones.py",
    "worker_agent/local/queueing/queued_work.py",
    "worker_agent/local/queueing/queues.py",
    "worker_agent/local/rights.py",
    "worker_agent/reconciler.py",
)

CALL_FOLDERS: Final = (
    "devcluster/federation",
    "devcluster/manifests.py",
    "devcluster/ports.py",
    "devcluster/providers/binaries",
    "devcluster/providers/catalog.py",
    "devcluster/providers/kind",
    "multikueue/api/codec.py",
    "multikueue/api/configuration_file.py",
    "multikueue/api/conversion.py",
    "multikueue/api/duration.py",
    "multikueue/api/structural.py",
    "multikueue/api/topologyslices.py",
    "multikueue/api/validation",
    "multikueue/api/yaml_text.py",
    "multikueue/cli",
    "multikueue/core/duration.py",
    "multikueue/api/intervals.py",
    "multikueue/core/parsing.py",
    "multikueue/core/quantity.py",
    "multikueue/core/selectors.py",
    "multikueue/core/timestamps.py",
    "multikueue/dispatch/protocol/kubeconfigs.py",
    "multikueue/dispatch/protocol/quota_automation.py",
    "multikueue/engine/decode",
    "multikueue/jobs",
    "multikueue/kube/rest/credentials.py",
    "multikueue/kube/rest/oidc.py",
    "multikueue/kube/rest/tls.py",
    "multikueue/simulation",
)
CONSTANT_MODULES: Final = (
    "multikueue/api/constants.py",
    "multikueue/api/featuregates.py",
)
RULE_FOLDER: Final = "multikueue/api"
"""The folder of the CEL rules, which the API server enforces."""
FIELD_ERRORS: Final = ("invalid", "required", "forbidden")
CALLS: Final = {
    **dict.fromkeys((*FIELD_ERRORS, "FieldError"), -1),
    "fail": 1,
    "print_message": 0,
    "BadParameter": 0,
}
"""The functions that take a message, and the position of that argument; -1 is the last."""
NOT_MESSAGES: Final = frozenset({"AssertionError", "KeyError", "NotImplementedError", "TypeError"})
_LOG: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "bound", "bind"})
_LEAST_WORDS: Final = 2
_PLACEHOLDER: Final = re.compile(r"(?:<[^<>]*>)+")


@dataclass(frozen=True, slots=True, order=True)
class Template:
    """A message: its text, and the file and line that have it."""

    text: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def normal(text: str) -> str:
    """The text with anonymous placeholders, so that their names may differ."""
    return re.sub(r"\s+", " ", _PLACEHOLDER.sub("<>", text)).strip()


def collect(root: Path = ROOT) -> list[Template]:
    """All messages in the source under `root`, in the order of their files."""
    found: dict[str, Template] = {}
    for file in MESSAGE_MODULES:
        for template in _Module(root, file).strings():
            found.setdefault(normal(template.text), template)
    for folder in CALL_FOLDERS:
        path = root / folder
        for module in [path] if path.suffix else sorted(path.rglob("*.py")):
            for template in _Module(root, str(module.relative_to(root))).calls():
                found.setdefault(normal(template.text), template)
    for module in sorted((root / RULE_FOLDER).glob("*.py")):
        for template in _Module(root, str(module.relative_to(root))).rules():
            found.setdefault(normal(template.text), template)
    return list(found.values())


class _Module:
    """One source file."""

    def __init__(self, root: Path, file: str) -> None:
        self._file = file
        self._tree = ast.parse((root / file).read_text())
        self._own = dict(_constants(self._tree))
        self._constants = _shared(root) | self._own

    def strings(self) -> Iterator[Template]:
        """Every string that is a message by its length."""
        for node in _visible(self._tree):
            yield from self._templates(node, ())
        if self._file.endswith("/messages.py"):
            for name, value in self._own.items():
                if not name.startswith("_"):
                    yield from self._templates(value, (), least=1)

    def rules(self) -> Iterator[Template]:
        """The messages of CEL rules."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and _name(node.func) == "CelRule":
                yield from self._templates(node.args[1], ())

    def calls(self) -> Iterator[Template]:
        """The messages of exceptions and of calls that show a message."""
        for scope in _scopes(self._tree):
            local: list[tuple[str, ast.expr]] = list(_assignments(scope.body))
            for node in _own(scope):
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                    name = _name(node.exc.func)
                    if name not in NOT_MESSAGES:
                        for argument in (*node.exc.args, *(each.value for each in node.exc.keywords)):
                            yield from self._templates(argument, local, least=1)
                elif isinstance(node, ast.Call) and _name(node.func) in CALLS:
                    position = CALLS[_name(node.func)]
                    if len(node.args) > max(position, 1 if position < 0 else position):
                        yield from self._templates(node.args[position], local, least=1)

    def _templates(
        self, node: ast.expr, local: Iterable[tuple[str, ast.expr]], *, least: int = _LEAST_WORDS
    ) -> Iterator[Template]:
        for value in _resolved(node, local, self._constants):
            text = template_of(value, self._constants)
            if text and len(_words(text)) >= least:
                yield Template(text, self._file, value.lineno)


@cache
def _shared(root: Path) -> dict[str, ast.expr]:
    """The constants that many modules import, such as names of labels."""
    found: dict[str, ast.expr] = {}
    for file in CONSTANT_MODULES:
        found |= _constants(ast.parse((root / file).read_text()))
    return found


def template_of(node: ast.expr, constants: Mapping[str, ast.expr] = MappingProxyType({})) -> str:
    """A string expression as a template; empty if it is none. Constants are filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_part(value, constants) for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, other = template_of(left, constants), template_of(right, constants)
            return f"{one or _placeholder(left)}{other or _placeholder(right)}" if one or other else ""
    return ""


def _part(node: ast.expr, constants: Mapping[str, ast.expr]) -> str:
    match node:
        case ast.FormattedValue(value=ast.Name(id=name)) if isinstance(constants.get(name), ast.Constant):
            return str(ast.literal_eval(constants[name]))
        case ast.FormattedValue(value=ast.Attribute(value=ast.Name(id="constants"), attr=name)) if name in constants:
            return str(ast.literal_eval(constants[name]))
        case ast.FormattedValue(value=value):
            return _placeholder(value)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _placeholder(node: ast.expr) -> str:
    return f"<{_called(node)}>"


def _called(node: ast.expr) -> str:
    """A name for the value of an expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").lower().replace("_", " ")
        case ast.Call(func=ast.Name(), args=[first, *_]):
            return _called(first)
        case ast.Call(func=ast.Attribute(attr="join"), args=[first, *_]):
            return _called(first)
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return name
        case ast.Call(func=func):
            return _called(func)
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Subscript(value=value):
            return _called(value)
        case ast.BoolOp(values=[first, *_]):
            return _called(first)
        case ast.BinOp(left=left):
            return _called(left)
    return "text"


def _words(text: str) -> list[str]:
    return re.findall(r"(?<![^\s(\"'])[A-Za-z]+(?:['-][a-z]+)*(?=[\s,;:!?)\"']|\.\s|\.?$)", _PLACEHOLDER.sub("", text))


def _resolved(
    node: ast.expr, local: Iterable[tuple[str, ast.expr]], constants: dict[str, ast.expr], depth: int = 0
) -> Iterator[ast.expr]:
    """The string expressions that an expression may have the value of."""
    if depth > 3:
        return
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            yield from _resolved(body, local, constants, depth)
            yield from _resolved(orelse, local, constants, depth)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _resolved(value, local, constants, depth)
        case ast.Call(func=ast.Attribute(attr="join", value=ast.Constant()), args=[ast.List(elts=parts)]):
            for part in parts:
                yield from _resolved(part, local, constants, depth + 1)
        case ast.Starred(value=value):
            yield from _resolved(value, local, constants, depth)
        case ast.List(elts=parts):
            for part in parts:
                yield from _resolved(part, local, constants, depth)
        case ast.ListComp(elt=part):
            yield from _resolved(part, local, constants, depth)
        case ast.Name(id=name):
            for known, value in local:
                if known == name:
                    yield from _resolved(value, local, constants, depth + 1)
            if name in constants:
                yield constants[name]
        case _:
            yield node


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    return _assignments(node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))


def _assignments(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for statement in body:
        for node in ast.walk(statement):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    yield name, value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    yield name, value
                case ast.AugAssign(target=ast.Name(id=name), value=value):
                    yield name, value


def _scopes(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _own(child)


def _visible(node: ast.AST) -> Iterator[ast.expr]:
    """The outermost string expressions that may be shown: no docstring, log line, help text, annotation or pattern."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Call(func=ast.Attribute(attr=name, value=owner)) if name in _LOG and "log" in _called(owner):
            return
        case ast.Call(func=ast.Attribute(attr="compile")):
            return
        case ast.Call(func=ast.Name(id=name)) if name in NOT_MESSAGES:
            return
        case ast.keyword(arg="help") | ast.Assert():
            return
        case ast.Constant(value=str()) | ast.JoinedStr():
            yield node
            return
        case ast.BinOp(op=ast.Add()) if template_of(node):
            yield node
            return
    for name, child in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for each in child if isinstance(child, list) else [child]:
            if isinstance(each, ast.AST):
                yield from _visible(each)


def _name(func: ast.expr) -> str:
    return func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
