# SPDX-License-Identifier: Apache-2.0
"""`mkctl logs`: the logs of the pods of a job of any kind, on whichever cluster they run.

Owns the options and the output: lines on standard output, notes on standard error. Reads the worker with a kubeconfig
of the caller, else through its agent; what the hub keeps of a failed job is shown when its pods are gone, or its
cluster cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import anyio

from multikueue.api.meta import JsonObject
from multikueue.cli.hub_options import WORKLOAD, HubOptions, add_options, add_workers, hub_and_workers, target
from multikueue.cli.job_kinds import kind_named, served_kinds
from multikueue.cli.logs.log_lines import LogLines
from multikueue.cli.logs.log_relay import LogRelayReader
from multikueue.cli.logs.log_sources import (
    HUB,
    JobPlace,
    config_of,
    containers_of,
    kept_lines,
    place_of,
    pod_of_group,
    pods_of,
    preferred,
)
from multikueue.cli.terminal import BAD_INPUT, FAILED, print_message
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.keys import Key
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.core.printable import printable
from multikueue.dispatch.protocol.job_logs import LogQuery
from multikueue.dispatch.protocol.job_problems import SUMMARY
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.kube.errors import (
    BadRequest,
    Forbidden,
    InternalError,
    KubeError,
    NotFound,
    ServerTimeout,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient

LOOK_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 5.0
_MOST_REQUESTS: Final = 5
"""With which a log that is not followed is read to its end."""
_RETRIED: Final = (Unreachable, TooManyRequests, InternalError, ServiceUnavailable, ServerTimeout)
_ANY: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What is shown."""

    job: Key
    kind: str = "job"
    """The kind of the job, as its user names it."""
    container: str = ""
    tail: int | None = None
    follow: bool = False
    all_pods: bool = False
    worker_kubeconfig: str | None = None
    relay: bool = False
    """Whether to read through the agent even if the cluster can be reached."""


def main(arguments: Sequence[str]) -> int:
    """Print the logs of a job."""
    given = _parser().parse_args(arguments)
    try:
        hub, wanted = hub_and_workers(given), _wanted(given)

        async def run() -> int:
            return await show(hub, wanted)

        return anyio.run(run)
    except MultikueueError as error:
        print_message(f"mkctl logs: {error}")
        return BAD_INPUT
    except KeyboardInterrupt:
        return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="mkctl logs",
        description="Print the logs of a job's pods, on whichever cluster they run.",
        allow_abbrev=False,
    )
    made.add_argument(
        "target",
        metavar="JOB",
        nargs="+",
        help="A Job as NAME or NAMESPACE/NAME, or a job of another kind as KIND NAME or KIND/NAMESPACE/NAME; of a group"
        " of pods pod/NAMESPACE/GROUP.",
    )
    add_options(made)
    made.add_argument("-f", "--follow", action="store_true", help="Print new lines as they are written, to the end.")
    made.add_argument("-c", "--container", metavar="NAME", default="", help="The container. Default: the first one.")
    made.add_argument("--tail", metavar="N", help="Only the last N lines of each container. Default: all.")
    made.add_argument(
        "--all-pods", action="store_true", help="Of all pods of the job, or of the group of a pod. Default: of one."
    )
    made.add_argument(
        "--worker-kubeconfig", metavar="FILE", help="Kubeconfig of the worker cluster on which the job runs."
    )
    made.add_argument(
        "--relay", action="store_true", help="Read through the agent of the cluster, even if it can be reached."
    )
    add_workers(made, help="Kubeconfig of a worker cluster. May be repeated.")
    return made


def _wanted(given: argparse.Namespace) -> LogOptions:
    ref = target(given.target, kind="job", namespace=given.namespace)
    if ref.kind == WORKLOAD:
        raise BadInput(
            f"{' '.join(given.target)!r} is not a job; use NAME or NAMESPACE/NAME of a Job, or KIND/NAMESPACE/NAME"
        )
    return LogOptions(
        job=Key(ref.key.namespace or given.namespace, ref.key.name),
        kind=ref.kind,
        container=given.container,
        tail=None if given.tail is None else parse_unsigned(given.tail, field="--tail", maximum=MAX_INT32),
        follow=given.follow,
        all_pods=given.all_pods,
        worker_kubeconfig=given.worker_kubeconfig,
        relay=given.relay,
    )


async def show(options: HubOptions, wanted: LogOptions) -> int:
    """Print the logs; the exit code. Raises `BadInput` and `KubeError`."""
    config = credentials.load(options.kubeconfig, context=options.context)
    wanted = replace(wanted, job=Key(wanted.job.namespace or config.namespace, wanted.job.name))
    async with KubeClient(config, user_agent="mkctl") as hub:
        kinds = (BATCH_JOB,) if wanted.kind == "job" else await served_kinds(hub, options)
        integration = kind_named(wanted.kind, kinds)
        member = await pod_of_group(hub, integration, wanted.job)
        if member is not None:
            if not wanted.all_pods:
                print_message(f"# {wanted.job} is a group, using pod {member.name}; --all-pods shows all of them")
            wanted = replace(wanted, job=member)
        return await _Reader(hub, options, wanted, integration).run()


class _Reader:
    """Reads one job, and moves on with it from pod to pod and cluster to cluster while it follows."""

    def __init__(self, hub: KubeClient, options: HubOptions, wanted: LogOptions, integration: JobIntegration) -> None:
        self._hub = hub
        self._integration = integration
        self._options = options
        self._wanted = wanted
        self._seen: set[str] = set()
        self._noted = self._source = ""
        self._prefixes = wanted.all_pods
        self._relay: LogRelayReader | None = None
        self._requests = 0
        self._read_on, self._read_at = "", 0.0
        """The cluster whose agent had nothing more, and when."""

    async def run(self) -> int:
        while True:
            try:
                place = await place_of(self._hub, self._integration, self._wanted.job, all_pods=self._wanted.all_pods)
            except _RETRIED as error:
                if not self._wanted.follow:
                    raise
                self._note(f"cannot read the hub, trying again: {error}")
                await anyio.sleep(LOOK_SECONDS)
                continue
            if place.cluster is None:
                if not self._wanted.follow or place.ended:
                    return await self._without_pods(place, "has no pods yet, since it waits for a worker cluster")
                self._note(f"{place.named} waits for a worker cluster: mkctl explain {place.argument}")
            elif await self._read(place):
                continue  # there may be more pods by now
            elif not self._wanted.follow or place.ended:
                # Whatever it wrote is shown; else its pods are gone, or there were none.
                return 0 if self._seen else await self._without_pods(place, f"has no pods on {place.where}")
            await anyio.sleep(LOOK_SECONDS)

    async def _read(self, place: JobPlace) -> bool:
        """Print the logs of pods that were not shown yet; whether to look for more of them at once."""
        async with self._cluster(place) as client:
            if client is None:
                return await self._relayed(place)
            if place.cluster != HUB:
                self._note_source(f"reading {place.where} with a kubeconfig of it")
            try:
                pods = await pods_of(client, place, all_pods=self._wanted.all_pods)
            except (Unreachable, Unauthorized) as error:
                if place.cluster == HUB or self._wanted.worker_kubeconfig is not None:
                    raise
                self._note(f"cannot read {place.where} directly: {error}")
                return await self._relayed(place)
            except KubeError as error:
                if place.ended:
                    self._note(f"cannot read {place.where}: {error}")
                elif self._wanted.follow and isinstance(error, _RETRIED):
                    self._note(f"cannot read {place.where}, trying again: {error}")
                else:
                    raise
                return False
            fresh = [pod for pod in pods if pod["metadata"]["uid"] not in self._seen]
            chosen = preferred(fresh)
            if chosen is None or (self._seen and not self._wanted.follow):
                return False
            if self._wanted.all_pods:
                await self._all(client, place, fresh)
                return self._wanted.follow
            if len(fresh) > 1:
                name = chosen["metadata"]["name"]
                self._note(f"found {len(fresh)} pods on {place.where}, using pod {name}; --all-pods shows all of them")
            # An older pod is not shown after a newer one.
            self._seen.update(pod["metadata"]["uid"] for pod in fresh)
            await self._pod(client, place, chosen)
            return self._wanted.follow

    async def _relayed(self, place: JobPlace) -> bool:
        """Print the logs that the agent of the cluster reads, or nothing if the hub keeps those of an ended Job."""
        assert place.cluster, "the hub itself is read directly"
        if place.ended and not self._wanted.relay and self._relay is None and await self._keeps_lines(place):
            return False
        if place.cluster == self._read_on and (place.ended or anyio.current_time() < self._read_at + _AGAIN_SECONDS):
            return False  # the end is on its way to the hub, or there was nothing to read yet
        if self._relay is None:
            wanted = self._wanted
            query = LogQuery(
                container=wanted.container, tail=wanted.tail, follow=wanted.follow, all_pods=wanted.all_pods
            )
            self._relay = LogRelayReader(
                self._hub, self._integration.resource, place.job, query, show=self._show, note=self._note
            )
        self._note_source(f"reading {place.where} through its agent")
        ended = await self._relay.read(place.cluster)
        if self._relay.has_shown:
            self._seen.add(place.cluster)
        self._requests += 1
        if ended.more and (self._wanted.follow or self._requests <= _MOST_REQUESTS):
            await anyio.sleep(LOOK_SECONDS)
            return True
        if ended.more:
            self._note(ended.message)
        else:
            self._read_on, self._read_at = place.cluster, anyio.current_time()
        return False

    async def _keeps_lines(self, place: JobPlace) -> bool:
        try:
            return await kept_lines(self._hub, place) is not None
        except Forbidden:
            return False

    def _show(self, lines: Iterator[str], pod: str, container: str) -> None:
        _print(lines, f"[{pod}/{container}] " if self._prefixes else "")

    async def _all(self, client: KubeClient, place: JobPlace, pods: list[JsonObject]) -> None:
        """Print the logs of these pods and, while following, of those that appear meanwhile. Raises as `_pod`."""
        failures: list[MultikueueError] = []

        async def one(pod: JsonObject) -> None:
            try:
                await self._pod(client, place, pod)
            except MultikueueError as error:
                failures.append(error)  # raised below: the task group would wrap it in an ExceptionGroup

        def start(found: list[JsonObject]) -> None:
            for pod in found:
                if pod["metadata"]["uid"] not in self._seen:
                    self._seen.add(pod["metadata"]["uid"])
                    tasks.start_soon(one, pod)

        async with anyio.create_task_group() as tasks:
            start(pods)
            while self._wanted.follow and not failures:
                await anyio.sleep(LOOK_SECONDS)
                try:
                    now = await place_of(self._hub, self._integration, place.job, all_pods=True)
                    start(await pods_of(client, now, all_pods=True))
                except _RETRIED as error:
                    self._note(f"cannot look for more pods, trying again: {error}")
                    continue
                except MultikueueError as error:
                    failures.append(error)
                    break
                if now.ended or now.cluster != place.cluster:
                    break
        if failures:
            raise failures[0]

    async def _pod(self, client: KubeClient, place: JobPlace, pod: JsonObject) -> None:
        names = containers_of(pod, self._wanted.container)
        if not names:
            raise BadInput(f"pod {pod['metadata']['name']} has no container {self._wanted.container}")
        for name in names:
            await self._container(client, place, str(pod["metadata"]["name"]), name)

    async def _container(self, client: KubeClient, place: JobPlace, pod: str, container: str) -> None:
        lines = LogLines()
        prefix = f"[{pod}/{container}] " if self._prefixes else ""
        tail = self._wanted.tail
        while True:
            pieces = client.stream_log(
                pod,
                namespace=place.job.namespace,
                container=container,
                tail=tail,
                follow=self._wanted.follow,
                since=lines.last or None,
            )
            try:
                async for piece in pieces:
                    _print(lines.add(piece), prefix)
                _print(lines.end(), prefix)
                return
            except NotFound:
                self._note(f"pod {pod} is gone from {place.where}")
                return
            except BadRequest as error:
                # It has not started, and may never.
                if not self._wanted.follow:
                    print_message(f"mkctl logs: pod {pod}: {error.message}")
                    return
                self._note(f"pod {pod}: {error.message}")
            except _RETRIED as error:
                if not self._wanted.follow:
                    raise
                self._note(f"the log of pod {pod} was interrupted, trying again: {error}")
            finally:
                await pieces.aclose()
            if lines.last:
                lines.reopened()
                tail = None
            await anyio.sleep(LOOK_SECONDS)

    @asynccontextmanager
    async def _cluster(self, place: JobPlace) -> AsyncIterator[KubeClient | None]:
        """A client of the cluster; None if no kubeconfig is known, or it is to be read through its agent."""
        if place.cluster == HUB:
            yield self._hub
            return
        assert place.cluster is not None, "it has a cluster"
        if self._wanted.worker_kubeconfig is not None and not self._wanted.relay:
            config = credentials.load(self._wanted.worker_kubeconfig)
        else:
            found = None if self._wanted.relay else await config_of(self._hub, self._options, place.cluster)
            if found is None:
                yield None
                return
            config = found
        async with AsyncExitStack() as stack:
            yield await stack.enter_async_context(KubeClient(config, user_agent="mkctl"))

    async def _without_pods(self, place: JobPlace, why: str) -> int:
        """Print what the hub keeps of a failed Job; else why there is nothing."""
        if not place.ended:
            print_message(
                f"mkctl logs: {place.named} {why}. To see why, or to wait for it:\nmkctl explain {place.argument}\n"
                f"mkctl logs {place.argument} -f"
            )
            return FAILED
        try:
            kept = await kept_lines(self._hub, place)
        except Forbidden as error:
            raise BadInput(
                f"the pods of {place.named} cannot be read any more, and its last lines on the hub are in a ConfigMap"
                f" that you may not read: {error.message}"
            ) from error
        if kept is None:
            print_message(
                f"mkctl logs: {place.named} has ended, its pods on {place.where} cannot be read (any more), and the"
                f" hub keeps lines of failed jobs only"
            )
            return FAILED
        print_message("# these are the last lines that the hub keeps; the pods cannot be read (any more)")
        for line in kept[SUMMARY].splitlines():
            print_message(f"# {line}")
        for key, text in kept.items():
            pod, _, container = key.removesuffix(".log").partition("_")
            if key == SUMMARY or (self._wanted.container and container != self._wanted.container):
                continue
            shown = text.splitlines()
            shown = shown[max(0, len(shown) - self._wanted.tail) :] if self._wanted.tail is not None else shown
            _print(iter(shown), f"[{pod}/{container}] ")
        return 0

    def _note_source(self, text: str) -> None:
        """Print where lines come from, once until that changes."""
        if text != self._source:
            self._source = text
            print_message(f"# {text}")

    def _note(self, text: str) -> None:
        """Print a note once, until there is another one."""
        if text != self._noted:
            self._noted = text
            print_message(f"# {text}")


def _print(lines: Iterator[str], prefix: str) -> None:
    for line in lines:
        print(prefix + printable(line, keep="\t"))
    sys.stdout.flush()
