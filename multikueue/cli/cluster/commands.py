# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster …`: the worker clusters of a hub, from their registration to their removal.

Owns the commands, their help texts and how results are printed. Results go to standard output and messages to standard
error, so that the output of `register` can be piped to the worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, TypeVar

import anyio
import typer

from multikueue.api.constants import DEFAULT_NAMESPACE
from multikueue.api.meta import JsonObject
from multikueue.cli.display import Output, errors_of, terminal_or_wide
from multikueue.cli.hub_options import HubOptions, hub_of
from multikueue.cli.terminal import FAILED, print_message, show_json, show_lines, show_text
from multikueue.core.clock import SystemClock
from multikueue.core.duration import parse_duration
from multikueue.core.errors import BadInput
from multikueue.kube.rest.client import KubeClient

if TYPE_CHECKING:
    from multikueue.cli.cluster.agent_kinds import AgentKinds

T = TypeVar("T")

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    name="cluster",
    help="Register, list, cordon, drain and remove worker clusters.",
)

Name = Annotated[str, typer.Argument(help="Name of the MultiKueueCluster.")]
Kubeconfig = Annotated[
    str | None,
    typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig of the hub. Default: the one that kubectl uses."),
]
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context in the kubeconfig. Default: the current one.")
]
Federation = Annotated[
    str | None, typer.Option("--federation", metavar="NAME", help="Use the hub of this federation of `mkctl up`.")
]
ManagerNamespace = Annotated[
    str, typer.Option("--manager-namespace", metavar="NAME", help="Namespace of the manager on the hub.")
]
FormerNamespace = Annotated[str | None, typer.Option("--namespace", metavar="NAME", hidden=True)]
"""The former name of `--manager-namespace`, accepted for one release."""
Frameworks = Annotated[
    str,
    typer.Option(
        "--frameworks",
        metavar="NAMES",
        help="Comma-separated kinds of jobs that the agent serves, as in integrations.frameworks of the manager's"
        " Configuration, also those that it declares. Default: batch/job.",
    ),
]
ExternalFrameworks = Annotated[
    str,
    typer.Option(
        "--external-frameworks",
        metavar="NAMES",
        help="Comma-separated kinds that another controller queues, as in multiKueue.externalFrameworks:"
        " Kind.version.group, with =PLURAL if the plural is an unusual one.",
    ),
]
Form = Annotated[Output, typer.Option("-o", "--output", help="Output format.")]


def main(arguments: Sequence[str]) -> int:
    """Run a command; returns the exit code."""
    try:
        app(list(arguments), prog_name="mkctl cluster", standalone_mode=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    return 0


@app.command()
def register(
    name: Name,
    ttl: Annotated[str, typer.Option(metavar="DURATION", help="Lifetime of the bootstrap token, at most 24h.")] = "1h",
    approve: Annotated[
        bool, typer.Option("--approve", help="Approve the first agent that presents the token, without `approve`.")
    ] = False,
    cluster_uid: Annotated[
        str,
        typer.Option(metavar="UID", help="Accept only the cluster whose kube-system namespace has this UID."),
    ] = "",
    hub_url: Annotated[
        str,
        typer.Option(metavar="URL", help="API server of the hub as the worker reaches it. Default: as in kubeconfig."),
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Register another cluster under a name in use.")] = False,
    use_namespace: Annotated[
        bool,
        typer.Option(
            "--use-namespace", help="Use the existing namespace mk-NAME although the manager did not create it."
        ),
    ] = False,
    manifest: Annotated[
        bool, typer.Option("--manifest", help="Print manifests for kubectl instead of a shell command.")
    ] = False,
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="Agent image in the manifests. Default: the image of this version.")
    ] = "",
    frameworks: Frameworks = "",
    external_frameworks: ExternalFrameworks = "",
    manager_namespace: ManagerNamespace = DEFAULT_NAMESPACE,
    namespace: FormerNamespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Register a worker cluster and print the command that starts its agent."""
    from multikueue.cli.cluster import joining_instructions
    from multikueue.cli.cluster.registering import Registration, RegistrationRequest
    from multikueue.cli.cluster.registering import register as register_cluster
    from multikueue.cli.job_kinds import agent_kinds

    with errors_of("cluster register"):
        where = _manager_namespace(manager_namespace, namespace, command="register")
        options = hub_of(kubeconfig=kubeconfig, context=context, federation=federation, manager_namespace=where)
        request = RegistrationRequest(
            cluster=name,
            namespace=where,
            ttl=_duration(ttl, "--ttl"),
            accept=approve,
            cluster_uid=cluster_uid,
            hub_url=hub_url,
            replace=replace,
            use_namespace=use_namespace,
        )

        async def act(hub: KubeClient) -> tuple[AgentKinds, Registration]:
            kinds = await agent_kinds(hub, options, frameworks=frameworks, external=external_frameworks)
            return kinds, await register_cluster(hub, request, clock=SystemClock())

        kinds, made = _on_hub(options, act)
        show_text(
            joining_instructions.manifest(made, image=image, kinds=kinds)
            if manifest
            else joining_instructions.command(made, kinds)
        )
        what = "Apply these manifests to the worker cluster" if manifest else "Run this command on the worker's side"
        then = "" if made.accepted else f", then approve it:\n  mkctl cluster approve {name}"
        print_message(f"# {name} is registered. {what} before {made.expires:%Y-%m-%dT%H:%M:%SZ}{then}")
        _print_roles(kinds.role_files())
        for right in () if manifest else kinds.rights():
            print_message(f"# The agent's user needs these rights on the worker cluster too: {right}")


@app.command()
def manifest(
    name: Name,
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="Agent image in the manifests. Default: the image of this version.")
    ] = "",
    frameworks: Frameworks = "",
    external_frameworks: ExternalFrameworks = "",
    manager_namespace: ManagerNamespace = DEFAULT_NAMESPACE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Print the manifests of a registered worker's agent, to upgrade it."""
    from multikueue.cli.cluster import joining_instructions
    from multikueue.cli.cluster.registering import registration_of
    from multikueue.cli.job_kinds import agent_kinds

    with errors_of("cluster manifest"):
        options = hub_of(
            kubeconfig=kubeconfig, context=context, federation=federation, manager_namespace=manager_namespace
        )

        async def read(hub: KubeClient) -> AgentKinds:
            kinds = await agent_kinds(hub, options, frameworks=frameworks, external=external_frameworks)
            await registration_of(hub, name)
            return kinds

        kinds = _on_hub(options, read)
        show_text(joining_instructions.newer_manifest(name, image=image, kinds=kinds), end="")
        _print_roles(kinds.role_files())


def _print_roles(files: Sequence[str]) -> None:
    if files:
        print_message(f"# For these kinds apply the agent's roles to the worker cluster too: {' '.join(files)}")


@app.command("approve")
def approve_command(
    name: Name,
    wait: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for the agent's certificate.")
    ] = "30s",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Approve a registered worker cluster and wait until its agent has a certificate."""
    from multikueue.cli.cluster.registering import approve

    with errors_of("cluster approve"):
        seconds = _duration(wait, "--wait").total_seconds()
        approved = _on_hub(
            hub_of(kubeconfig=kubeconfig, context=context, federation=federation),
            lambda hub: approve(hub, name, wait_seconds=seconds),
        )
        show_lines([approved])


@app.command("list")
def list_command(
    output: Form = Output.TABLE, kubeconfig: Kubeconfig = None, context: Context = None, federation: Federation = None
) -> None:
    """List all worker clusters with their status, workloads and nodes."""
    from multikueue.cli.cluster import view

    with errors_of("cluster list"):
        found = _on_hub(hub_of(kubeconfig=kubeconfig, context=context, federation=federation), view.clusters)
        if output is Output.JSON:
            show_json(found)
            return
        rows = []
        for each in found:
            nodes = each["nodes"] or {}
            rows.append(
                (
                    each["name"],
                    each["transport"],
                    str(each["active"]),
                    view.availability(each),
                    str(each["workloads"]),
                    f"{nodes.get('ready', '-')}/{nodes.get('total', '-')}",
                    each["reason"] if each["active"] else f"{each['reason']}: {each['message']}",
                )
            )
        _show_table(("CLUSTER", "TRANSPORT", "ACTIVE", "STATUS", "WORKLOADS", "NODES", "REASON"), rows)


@app.command()
def describe(
    name: Name,
    manager_namespace: ManagerNamespace = DEFAULT_NAMESPACE,
    namespace: FormerNamespace = None,
    output: Form = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Show one worker cluster: connection, registration, capacity, dispatch policy and missing rights."""
    from multikueue.cli.cluster import view

    with errors_of("cluster describe"):
        options = hub_of(
            kubeconfig=kubeconfig,
            context=context,
            federation=federation,
            manager_namespace=_manager_namespace(manager_namespace, namespace, command="describe"),
        )

        async def read(hub: KubeClient) -> JsonObject:
            return {
                **await view.cluster(hub, name),
                "dispatchPolicy": await view.dispatch_policy(hub, name, options=options),
            }

        found = _on_hub(options, read)
        if output is Output.JSON:
            show_json(found)
            return
        capacity, missing = found.pop("capacity"), found.pop("missingRights")
        del found["accepted"]  # `registration` has it as text
        found["dispatchPolicy"] = view.policy_text(found["dispatchPolicy"])
        for key, value in {**found, "status": view.availability(found)}.items():
            text = ", ".join(f"{k} {v}" for k, v in value.items() if v) if isinstance(value, dict) else value
            show_lines([f"{key + ':':28} {'-' if text in (None, '', []) else text}"])
        for entry in capacity:
            show_lines([f"{entry['name'] + ':':28} {entry['free']} free of {entry['allocatable']}"])
        for right in missing:
            needed = "required: " if right["required"] else ""
            show_lines([f"{'missing right:':28} {right['verb']} {right['resource']} ({needed}{right['gives']})"])


@app.command()
def cordon(name: Name, kubeconfig: Kubeconfig = None, context: Context = None, federation: Federation = None) -> None:
    """Stop sending new workloads to a worker cluster; running workloads continue."""
    from multikueue.cli.cluster.lifecycle import set_availability

    with errors_of("cluster cordon"):
        options = hub_of(kubeconfig=kubeconfig, context=context, federation=federation)
        _on_hub(options, lambda hub: set_availability(hub, name, {"cordoned": True}))
        show_lines([f"{name} is cordoned"])


@app.command()
def uncordon(name: Name, kubeconfig: Kubeconfig = None, context: Context = None, federation: Federation = None) -> None:
    """Send workloads to a worker cluster again; this also ends a drain."""
    from multikueue.cli.cluster.lifecycle import set_availability

    with errors_of("cluster uncordon"):
        options = hub_of(kubeconfig=kubeconfig, context=context, federation=federation)
        spec = {"cordoned": False, "drain": False, "drainDeadline": None}
        _on_hub(options, lambda hub: set_availability(hub, name, spec))
        show_lines([f"{name} is uncordoned"])


@app.command()
def drain(
    name: Name,
    deadline: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Move running workloads after this time, such as 0s or 15m. Default: never."
        ),
    ] = "",
    wait: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait until the cluster has no workloads.")
    ] = "0s",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Move workloads to other clusters: waiting ones at once, running ones at the deadline.

    Exit code 1 if workloads are left after --wait.
    """
    from multikueue.cli.cluster import lifecycle

    with errors_of("cluster drain"):
        moment, patience = _duration(deadline, "--deadline") if deadline else None, _duration(wait, "--wait")

        async def act(hub: KubeClient) -> list[str]:
            await lifecycle.drain(hub, name, deadline=moment, clock=SystemClock())
            return await lifecycle.wait_until_empty(hub, name, timeout=patience)

        left = _on_hub(hub_of(kubeconfig=kubeconfig, context=context, federation=federation), act)
        show_lines([f"{name} is draining, {len(left)} workloads are left" if left else f"{name} is drained"])
        if left and patience:
            raise typer.Exit(FAILED)


@app.command()
def remove(
    name: Name,
    deadline: Annotated[
        str, typer.Option(metavar="DURATION", help="Move running workloads after this time, such as 0s or 15m.")
    ] = "15m",
    wait: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait until the cluster has no workloads.")
    ] = "30m",
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait; workloads that are left are treated as lost.")
    ] = False,
    manager_namespace: ManagerNamespace = DEFAULT_NAMESPACE,
    namespace: FormerNamespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Drain a worker cluster, remove it from all MultiKueueConfigs and delete its objects.

    Nothing is changed if the cluster cannot be removed or if you lack a permission for it.
    """
    from multikueue.cli.cluster.removal import remove_cluster

    with errors_of("cluster remove"):
        moment, patience = _duration(deadline, "--deadline"), _duration(wait, "--wait")
        where = _manager_namespace(manager_namespace, namespace, command="remove")

        async def act(hub: KubeClient) -> list[str]:
            return await remove_cluster(
                hub, name, deadline=moment, timeout=patience, force=force, namespace=where, clock=SystemClock()
            )

        configs = _on_hub(hub_of(kubeconfig=kubeconfig, context=context, federation=federation), act)
        show_lines([f"{name} is removed" + (f", also from {', '.join(configs)}" if configs else "")])


@app.command()
def recover(
    name: Name,
    adopt: Annotated[bool, typer.Option("--adopt", help="Create or bind their jobs on this hub.")] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Let the agent delete them on the worker.")] = False,
    manager: Annotated[
        str,
        typer.Option(
            metavar="UID", help="Only jobs of the management cluster whose kube-system namespace has this UID."
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the actions without doing them.")] = False,
    role: Annotated[
        bool,
        typer.Option("--role", help="Only print the ClusterRole for the hub's kinds, besides kueue-recover-role."),
    ] = False,
    wait: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for each reply of the agent.")
    ] = "60s",
    manager_namespace: ManagerNamespace = DEFAULT_NAMESPACE,
    namespace: FormerNamespace = None,
    output: Form = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """List the jobs that a worker runs for a lost management cluster; adopt or discard them.

    ProvisioningRequests whose capacity no job consumes are listed too, and are deleted in both cases. Without --adopt
    or --discard nothing is changed.
    """
    from multikueue.cli.cluster.joining_instructions import as_yaml
    from multikueue.cli.cluster.recovering import RecoveredOrphans, RecoveryAction, recovery_rights
    from multikueue.cli.cluster.recovering import recover as recover_jobs
    from multikueue.cli.job_kinds import served_kinds

    with errors_of("cluster recover"):
        if adopt and discard:
            raise BadInput("--adopt and --discard exclude each other; give only one")
        action = RecoveryAction.ADOPT if adopt else RecoveryAction.DISCARD if discard else RecoveryAction.LIST
        patience = _duration(wait, "--wait").total_seconds()
        where = _manager_namespace(manager_namespace, namespace, command="recover")
        options = hub_of(kubeconfig=kubeconfig, context=context, federation=federation, manager_namespace=where)

        if role:
            show_text(as_yaml(recovery_rights(_on_hub(options, lambda hub: served_kinds(hub, options)))), end="")
            return

        async def act(hub: KubeClient) -> RecoveredOrphans:
            return await recover_jobs(
                hub,
                name,
                action=action,
                manager_uid=manager,
                dry_run=dry_run,
                patience=patience,
                namespace=where,
                kinds=await served_kinds(hub, options),
            )

        found = _on_hub(options, act)
        if output is Output.JSON:
            show_json(found.entries)
            return
        fields = ("kind", "namespace", "name", "phase", "epoch", "action", "why")
        rows = [tuple(str(entry[field]) for field in fields) for entry in found.entries]
        _show_table(("KIND", "NAMESPACE", "NAME", "PHASE", "EPOCH", "ACTION", "WHY"), rows)
        done = "would be done" if dry_run or action is RecoveryAction.LIST else "was done"
        count = len(found.entries)
        print_message(f"# {count} jobs on {name} belong to another management cluster; ACTION is what {done}")


def _duration(text: str, option: str) -> timedelta:
    """The value of an option such as `90s`, `15m` or `2h`. Raises `BadInput`."""
    try:
        found = parse_duration(text)
    except BadInput as error:
        raise BadInput(f"{option}: {error}") from error
    if found < timedelta():
        raise BadInput(f"{option}: {text} is negative")
    return found


def _manager_namespace(manager_namespace: str, former: str | None, *, command: str) -> str:
    """The manager's namespace from `--manager-namespace` or, with a warning, from its former name."""
    if former is None:
        return manager_namespace
    print_message(f"mkctl cluster {command}: warning: --namespace is deprecated; use --manager-namespace")
    return former


def _show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    terminal_or_wide().print(table)


def _on_hub(options: HubOptions, call: Callable[[KubeClient], Awaitable[T]]) -> T:
    async def run() -> T:
        from multikueue.kube.rest import credentials

        config = credentials.load(options.kubeconfig, context=options.context)
        async with KubeClient(config, user_agent="mkctl") as client:
            return await call(client)

    return anyio.run(run)
