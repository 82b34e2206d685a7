# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster …`: the worker clusters of a hub, from their registration to their removal.

Owns the commands and how results are printed. Results go to standard output and words about them to standard error, so
that what `register` prints can be piped to where it is run.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final, TypeVar

import anyio
import orjson
import typer

from multikueue.api.meta import JsonObject
from multikueue.cli.display import FAILED, Output, errors_of, terminal_or_wide
from multikueue.core.clock import SystemClock
from multikueue.core.errors import BadInput
from multikueue.kube.client import KubeClient

T = TypeVar("T")

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, name="cluster")

_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
Name = Annotated[str, typer.Argument(help="the MultiKueueCluster")]
Kubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", help="the hub, as an administrator; without it as kubectl finds it")
]
Context = Annotated[str | None, typer.Option("--context", help="the context of that kubeconfig")]
Federation = Annotated[str | None, typer.Option("--federation", help="a federation of `mkctl up`, by its name")]
Namespace = Annotated[str, typer.Option("--namespace", help="the manager's own namespace")]
Form = Annotated[Output, typer.Option("-o", "--output", help="form of the result")]
_DEFAULT_NAMESPACE: Final = "kueue-system"


@dataclass(frozen=True, slots=True)
class Hub:
    """The options that say which hub."""

    kubeconfig: str | None
    context: str | None
    federation: str | None


def main(arguments: Sequence[str]) -> int:
    """Run one of them; gives the exit code."""
    try:
        app(list(arguments), prog_name="mkctl cluster", standalone_mode=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    return 0


def duration(text: str) -> timedelta:
    """`90s`, `15m` or `2h`. Raises `BadInput`."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdigit():
        raise BadInput(f"{text!r} is not a duration such as 90s, 15m or 2h")
    return timedelta(seconds=int(number) * _UNITS[unit])


@app.command()
def register(
    name: Name,
    ttl: Annotated[str, typer.Option(help="how long the bootstrap token is good, at most 24h")] = "1h",
    approve: Annotated[bool, typer.Option("--approve", help="let in whoever comes with the token")] = False,
    cluster_uid: Annotated[str, typer.Option(help="let in this cluster only: the uid of its kube-system")] = "",
    hub_url: Annotated[str, typer.Option(help="the hub's API server as the worker reaches it")] = "",
    replace: Annotated[bool, typer.Option("--replace", help="give the name to another cluster")] = False,
    manifest: Annotated[bool, typer.Option("--manifest", help="print objects for the worker, not a command")] = False,
    image: Annotated[str, typer.Option(help="of the agent, in the manifest")] = "",
    namespace: Namespace = _DEFAULT_NAMESPACE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Register a worker and print what to run beside it."""
    from multikueue.cli import joining_instructions
    from multikueue.cli.registering import Wanted
    from multikueue.cli.registering import register as make

    with errors_of("cluster register"):
        wanted = Wanted(
            cluster=name,
            namespace=namespace,
            ttl=duration(ttl),
            accept=approve,
            cluster_uid=cluster_uid,
            hub_url=hub_url,
            replace=replace,
        )
        made = _on_hub(Hub(kubeconfig, context, federation), lambda hub: make(hub, wanted, clock=SystemClock()))
        print(joining_instructions.manifest(made, image=image) if manifest else joining_instructions.command(made))
        then = "" if made.accepted else f", and then here:\n  mkctl cluster approve {name}"
        _say(f"# {name} is registered. Run this beside it before {made.expires:%Y-%m-%dT%H:%M:%SZ}{then}")


@app.command()
def manifest(
    name: Name,
    image: Annotated[str, typer.Option(help="of the agent")] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Print the agent of a registered worker anew, for an upgrade."""
    from multikueue.cli import joining_instructions
    from multikueue.cli.registering import registration_of

    with errors_of("cluster manifest"):
        _on_hub(Hub(kubeconfig, context, federation), lambda hub: registration_of(hub, name))
        print(joining_instructions.newer_manifest(name, image=image), end="")


@app.command("approve")
def approve_command(
    name: Name,
    wait: Annotated[str, typer.Option(help="how long to wait for the agent's certificate")] = "30s",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Let a registered worker in."""
    from multikueue.cli.registering import approve

    with errors_of("cluster approve"):
        seconds = duration(wait).total_seconds()
        print(_on_hub(Hub(kubeconfig, context, federation), lambda hub: approve(hub, name, wait_seconds=seconds)))


@app.command("list")
def list_command(
    output: Form = Output.TABLE, kubeconfig: Kubeconfig = None, context: Context = None, federation: Federation = None
) -> None:
    """Show all workers."""
    from multikueue.cli import cluster_view

    with errors_of("cluster list"):
        found = _on_hub(Hub(kubeconfig, context, federation), cluster_view.clusters)
        if output is Output.JSON:
            print(_json(found))
            return
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("CLUSTER", "TRANSPORT", "ACTIVE", "STANDING", "WORKLOADS", "NODES", "REASON"):
            table.add_column(column, overflow="fold")
        for each in found:
            nodes = each["nodes"] or {}
            table.add_row(
                each["name"],
                each["transport"],
                str(each["active"]),
                cluster_view.standing(each),
                str(each["workloads"]),
                f"{nodes.get('ready', '-')}/{nodes.get('total', '-')}",
                each["reason"] if each["active"] else f"{each['reason']}: {each['message']}",
            )
        terminal_or_wide().print(table)


@app.command()
def describe(
    name: Name,
    output: Form = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Show everything about one worker."""
    from multikueue.cli import cluster_view

    with errors_of("cluster describe"):
        found = _on_hub(Hub(kubeconfig, context, federation), lambda hub: cluster_view.cluster(hub, name))
        if output is Output.JSON:
            print(_json(found))
            return
        capacity = found.pop("capacity")
        for key, value in {**found, "standing": cluster_view.standing(found)}.items():
            text = ", ".join(f"{k} {v}" for k, v in value.items() if v) if isinstance(value, dict) else value
            print(f"{key + ':':28} {'-' if text in (None, '', []) else text}")
        for entry in capacity:
            print(f"{entry['name'] + ':':28} {entry['free']} free of {entry['allocatable']}")


@app.command()
def cordon(name: Name, kubeconfig: Kubeconfig = None, context: Context = None, federation: Federation = None) -> None:
    """Send no new work to a worker; what is there goes on."""
    _stand("cordon", name, {"cordoned": True}, f"{name} is cordoned", hub=Hub(kubeconfig, context, federation))


@app.command()
def uncordon(name: Name, kubeconfig: Kubeconfig = None, context: Context = None, federation: Federation = None) -> None:
    """Send work to a worker again; ends a drain."""
    spec = {"cordoned": False, "drain": False, "drainDeadline": None}
    _stand("uncordon", name, spec, f"{name} takes work again", hub=Hub(kubeconfig, context, federation))


@app.command()
def drain(
    name: Name,
    deadline: Annotated[str, typer.Option(help="when running work is moved, as 0s, 15m, 2h; without it never")] = "",
    wait: Annotated[str, typer.Option(help="how long to wait until the worker is empty")] = "0s",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Move work away: what waits at once, what runs by the deadline. Exit code 1 when some is left after --wait."""
    from multikueue.cli import cluster_lifecycle

    with errors_of("cluster drain"):
        moment, patience = duration(deadline) if deadline else None, duration(wait)

        async def act(hub: KubeClient) -> list[str]:
            await cluster_lifecycle.drain(hub, name, deadline=moment, clock=SystemClock())
            return await cluster_lifecycle.wait_until_empty(hub, name, timeout=patience)

        left = _on_hub(Hub(kubeconfig, context, federation), act)
        print(f"{name} is draining, {len(left)} workloads are left" if left else f"{name} is drained")
        if left and patience:
            raise typer.Exit(FAILED)


@app.command()
def remove(
    name: Name,
    deadline: Annotated[str, typer.Option(help="when running work is moved, as 0s, 15m, 2h")] = "15m",
    wait: Annotated[str, typer.Option(help="how long to wait until the worker is empty")] = "30m",
    force: Annotated[bool, typer.Option("--force", help="do not wait; what is left is judged as lost")] = False,
    namespace: Namespace = _DEFAULT_NAMESPACE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """Drain a worker, take it out of every config, and withdraw what it was given."""
    from multikueue.cli import cluster_lifecycle

    with errors_of("cluster remove"):
        moment, patience = duration(deadline), duration(wait)

        async def act(hub: KubeClient) -> list[str]:
            await cluster_lifecycle.drain(hub, name, deadline=moment, clock=SystemClock())
            if not force:
                left = await cluster_lifecycle.wait_until_empty(hub, name, timeout=patience)
                if left:
                    raise BadInput(f"{len(left)} workloads are left on {name}, such as {left[0]}; see --wait, --force")
            return await cluster_lifecycle.remove(hub, name, namespace=namespace)

        configs = _on_hub(Hub(kubeconfig, context, federation), act)
        print(f"{name} is removed" + (f", also from {', '.join(configs)}" if configs else ""))


@app.command()
def recover(
    name: Name,
    adopt: Annotated[bool, typer.Option("--adopt", help="go on with them here")] = False,
    discard: Annotated[bool, typer.Option("--discard", help="have the agent remove them")] = False,
    manager: Annotated[
        str, typer.Option(help="only those of that management cluster: the uid of its kube-system")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be done, and do nothing")] = False,
    wait: Annotated[str, typer.Option(help="how long to wait for each answer of the agent")] = "60s",
    namespace: Namespace = _DEFAULT_NAMESPACE,
    output: Form = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    federation: Federation = None,
) -> None:
    """List what a worker runs for a management cluster that is no more; go on with it here, or discard it."""
    from multikueue.cli.recovering import Wanted
    from multikueue.cli.recovering import recover as act

    with errors_of("cluster recover"):
        if adopt and discard:
            raise BadInput("--adopt and --discard exclude each other")
        wanted = Wanted.ADOPT if adopt else Wanted.DISCARD if discard else Wanted.LIST
        patience = duration(wait).total_seconds()
        found = _on_hub(
            Hub(kubeconfig, context, federation),
            lambda hub: act(
                hub,
                name,
                wanted=wanted,
                manager_uid=manager,
                dry_run=dry_run,
                patience=patience,
                namespace=namespace,
            ),
        )
        if output is Output.JSON:
            print(_json(found.entries))
            return
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("NAMESPACE", "NAME", "PHASE", "EPOCH", "ACTION", "WHY"):
            table.add_column(column, overflow="fold")
        for entry in found.entries:
            table.add_row(*(str(entry[field]) for field in ("namespace", "name", "phase", "epoch", "action", "why")))
        terminal_or_wide().print(table)
        said = "would be done" if dry_run or wanted is Wanted.LIST else "was done"
        _say(f"# {len(found.entries)} copies on {name} are of another management cluster; ACTION is what {said}")


def _stand(command: str, name: str, spec: JsonObject, done: str, *, hub: Hub) -> None:
    from multikueue.cli.cluster_lifecycle import set_standing

    with errors_of(f"cluster {command}"):
        _on_hub(hub, lambda client: set_standing(client, name, spec))
        print(done)


def _on_hub(hub: Hub, call: Callable[[KubeClient], Awaitable[T]]) -> T:
    async def run() -> T:
        from multikueue.cli.reaching import hub_of
        from multikueue.kube import credentials

        found = hub_of(kubeconfig=hub.kubeconfig, context=hub.context, federation=hub.federation)
        async with KubeClient(credentials.load(found.kubeconfig, context=found.context), user_agent="mkctl") as client:
            return await call(client)

    return anyio.run(run)


def _json(document: object) -> str:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def _say(text: str) -> None:
    print(text, file=sys.stderr)
