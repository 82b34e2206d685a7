# SPDX-License-Identifier: Apache-2.0
"""`mkctl integration check`: what the declaration of a job kind makes of a job, without a cluster.

Owns the options and the output. Exit status 1 means that the declaration or the job has mistakes; all are printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from multikueue.api.codec import documents
from multikueue.api.objects import JsonObject, describe
from multikueue.api.resource import Resource
from multikueue.cli.inspect.manifest_options import OutputFormat, add_output, show
from multikueue.cli.terminal import BAD_INPUT, FAILED, print_message
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.jobs.framework.capabilities import RuntimeKind
from multikueue.jobs.framework.runtimes import GivenRuntimes

if TYPE_CHECKING:
    from rich.table import Table

    from multikueue.jobs.declared.integration import DeclaredIntegration

_WIDTH: Final = 80


class Mistakes(MultikueueError):
    """What is wrong with the declaration or the job, one text each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def main(arguments: Sequence[str]) -> int:
    """Run `mkctl integration`; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        integration = _integration(options.declaration)
        given = _objects(options.files, integration)
        runtimes = GivenRuntimes(given)
        jobs = [runtimes.added_to(each, integration) for each in given if _is_of(each, integration.resource)]
        found = [document(integration, job) for job in jobs]
    except Mistakes as error:
        for problem in error.problems:
            print_message(f"mkctl integration check: {problem}")
        return FAILED
    except MultikueueError as error:
        print_message(f"mkctl integration check: {error}")
        return BAD_INPUT
    output = OutputFormat(options.output)
    for each in found:
        if output is OutputFormat.TABLE:
            _print(each)
        else:
            show(each, output)
    return 0


def document(integration: DeclaredIntegration, job: JsonObject) -> JsonObject:
    """The pod sets, the state and the remote job, as one document. Raises `Mistakes`."""
    from multikueue.jobs.framework.pod_templates import original_infos
    from multikueue.jobs.framework.protocol import RemoteIdentity
    from multikueue.jobs.framework.workloads import Priority, workload_for

    problems = [f"{describe(job)}: {problem}" for problem in integration.job_refusals(job)]
    if problems:
        raise Mistakes(problems)
    try:
        workload = workload_for(job, integration, priority=Priority())
        identity = RemoteIdentity(
            workload_name=workload["metadata"]["name"],
            origin="multikueue",
            epoch=1,
            manager_uid="manager",
            cluster="worker",
            assignment="assignment",
        )
        end, priority = integration.finished(job), integration.priority(job)
        state: JsonObject = {
            "queue": integration.queue_name(job),
            "suspended": integration.is_suspended(job),
            "managedBy": integration.managed_by(job),
            "active": integration.is_active(job),
            "podsReady": integration.pods_ready(job),
            "finished": {"reason": end.reason, "message": end.message} if end is not None else None,
            "reclaimable": {each.name: each.count for each in integration.reclaimable(job)},
            "priorityClass": priority.workload_class or priority.job_class or priority.pod_class,
        }
        pod_sets = [each | {"requests": _requests(each)} for each in workload["spec"]["podSets"]]
        remote = integration.remote_manifest(job, original_infos(workload), identity=identity)
    except MultikueueError as error:
        raise Mistakes([f"{describe(job)}: {error}"]) from error
    return {
        "framework": integration.framework,
        "job": describe(job),
        "workload": workload["metadata"]["name"],
        "podSets": pod_sets,
        "state": state,
        "remote": remote,
    }


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="mkctl integration", description="Work with declarations of job kinds.", allow_abbrev=False
    )
    commands = made.add_subparsers(metavar="COMMAND", required=True)
    check = commands.add_parser(
        "check",
        help="Check a declaration, and show what it makes of a job.",
        description="Check a declaration, and show the pod sets, the state and the remote job that it makes of a job.",
        allow_abbrev=False,
    )
    check.add_argument(
        "declaration",
        metavar="DECLARATION",
        help="File with a JobKind, the framework of a shipped one, such as jobset.x-k8s.io/jobset, or the"
        " Kind.version.group of an external framework.",
    )
    check.add_argument(
        "-f",
        "--filename",
        dest="files",
        metavar="FILE",
        action="append",
        default=[],
        help="Manifest with jobs of that kind, and the runtimes that they name; other objects are skipped. May be"
        " repeated.",
    )
    add_output(check)
    return made


def _integration(named: str) -> DeclaredIntegration:
    """The integration of a file, of a shipped framework, or of an external one. Raises `Mistakes` and `BadInput`."""
    from multikueue.api.configuration import ExternalFramework
    from multikueue.api.configuration_rules import external_problems
    from multikueue.jobs.declared.external import external_integration
    from multikueue.jobs.declared.integration import DeclaredIntegration
    from multikueue.jobs.declared.mistakes import DeclarationMistakes
    from multikueue.jobs.declared.reading import read_declaration
    from multikueue.jobs.declared.shipped import declared_integrations

    shipped = declared_integrations()
    found = shipped.get(named)
    if isinstance(found, DeclaredIntegration) and not Path(named).is_file():
        return found
    if not Path(named).exists() and not list(external_problems([ExternalFramework(name=named)])):
        return external_integration(named)
    try:
        text = Path(named).read_bytes()
    except OSError as error:
        raise BadInput(
            f"{named}: cannot read it: {error.strerror or error}; shipped frameworks are {', '.join(shipped)}"
        ) from error
    try:
        return DeclaredIntegration(read_declaration(text, origin=named))
    except DeclarationMistakes as error:
        raise Mistakes([f"{named}: {problem}" for problem in error.problems]) from error


def _objects(files: Sequence[str], integration: DeclaredIntegration) -> list[JsonObject]:
    """All objects in these files. Raises `BadInput` for a file without a job of the kind, or a runtime of one."""
    given = []
    kinds = [integration.resource, *(integration.runtimes if isinstance(integration, RuntimeKind) else ())]
    for file in files:
        try:
            text = Path(file).read_bytes()
        except OSError as error:
            raise BadInput(f"{file}: cannot read it: {error.strerror or error}") from error
        found = list(documents(text, source=file))
        if not any(_is_of(each, kind) for each in found for kind in kinds):
            wanted = f"{integration.resource.api_version} {integration.resource.kind}"
            raise BadInput(f"{file}: expected a {wanted} with a name, found none")
        given += found
    return given


def _is_of(job: JsonObject, kind: Resource) -> bool:
    group = str(job.get("apiVersion", "")).rpartition("/")[0]
    metadata = job.get("metadata")
    named = isinstance(metadata, dict) and bool(metadata.get("name"))
    return named and (group, job.get("kind")) == (kind.group, kind.kind)


def _print(found: Mapping[str, Any]) -> None:
    import yaml

    from multikueue.cli.console import PrintableConsole

    console = PrintableConsole(width=_WIDTH)
    console.print(f"{found['job']} ({found['framework']})")
    console.print(f"Workload {found['workload']}")
    console.print(_pod_sets(found["podSets"]))
    console.print(_state(found["state"]))
    console.print("On a worker:")
    text = yaml.dump(dict(found["remote"]), Dumper=yaml.SafeDumper, sort_keys=False, width=_WIDTH)
    console.print(text, soft_wrap=True, end="")


def _pod_sets(pod_sets: Sequence[JsonObject]) -> Table:
    table = _table("POD SET", "PODS", "REQUESTS OF ONE POD")
    for each in pod_sets:
        table.add_row(str(each["name"]), str(each["count"]), _shown(each["requests"]))
    return table


def _requests(pod_set: JsonObject) -> dict[str, str]:
    """The effective requests of one pod, as quota counts them. Raises `BadInput`."""
    from multikueue.engine.decode.pods import Shapes
    from multikueue.engine.pod_requests import adjust, pod_request

    shape = Shapes().of(pod_set["template"]["spec"])
    return {name: str(amount) for name, amount in sorted(pod_request(adjust(shape, {}, ())).items())}


def _state(state: JsonObject) -> Table:
    table = _table("STATE", "")
    for name, value in state.items():
        table.add_row(name, _shown(value))
    return table


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {each}" for name, each in value.items() if each != "") or "-"
    return str(value) if value else "-"


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
