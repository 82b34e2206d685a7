# SPDX-License-Identifier: Apache-2.0
"""The command line of the agent."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from multikueue.api.constants import DEFAULT_ORIGIN
from multikueue.core.errors import BadInput
from multikueue.federation.enrolment import MAX_CERTIFICATE_SECONDS, MIN_TOKEN_SECONDS
from worker_agent.heartbeat import Rhythm

HUB_QPS: Final = 50.0
HUB_BURST: Final = 100
"""What a burst of short Jobs needs of one agent, and little enough that fifty agents at once are no storm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """When in the life of a certificate the next one is asked for, and how long that one is to be good."""

    earliest: float = 0.5
    latest: float = 0.8
    seconds: int = MAX_CERTIFICATE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    cluster: str
    hub_kubeconfig: str | None = None
    hub_secret: str | None = None
    bootstrap_kubeconfig: str | None = None
    hub_context: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    origin: str = DEFAULT_ORIGIN
    health_bind: str = "0"
    log_format: str = "json"
    log_level: str = "info"
    rhythm: Rhythm = field(default_factory=Rhythm)
    renewal: Renewal = field(default_factory=Renewal)
    hub_qps: float = HUB_QPS
    hub_burst: int = HUB_BURST


def parser() -> argparse.ArgumentParser:
    """The flags of `python -m worker_agent`."""
    rhythm = Rhythm()
    flags = argparse.ArgumentParser(prog="mk-worker-agent", description="The agent beside a worker cluster.")
    flags.add_argument("--cluster", required=True, metavar="NAME", help="the MultiKueueCluster that this cluster is")
    home = flags.add_mutually_exclusive_group(required=True)
    home.add_argument("--hub-kubeconfig", metavar="FILE", help="the management cluster, as the identity of this agent")
    home.add_argument(
        "--hub-secret", metavar="NAMESPACE/NAME", help="the same, kept in a Secret of this cluster instead of a file"
    )
    flags.add_argument(
        "--bootstrap-kubeconfig",
        metavar="FILE",
        help="what `mkctl cluster register` printed: asks for the identity where there is none yet",
    )
    flags.add_argument("--hub-context", help="the context of that kubeconfig")
    flags.add_argument("--kubeconfig", metavar="FILE", help="this cluster; without it the pod's own account")
    flags.add_argument("--context", help="the context of that kubeconfig")
    flags.add_argument("--origin", default=DEFAULT_ORIGIN, help="multiKueue.origin of the manager (%(default)s)")
    flags.add_argument("--health-bind", default="0", metavar="ADDR", help="probes and metrics: HOST:PORT; 0 for none")
    flags.add_argument("--renew-seconds", type=float, default=rhythm.renew_seconds, help="(%(default)s)")
    flags.add_argument("--lease-seconds", type=int, default=rhythm.lease_seconds, help="(%(default)s)")
    flags.add_argument("--report-seconds", type=float, default=rhythm.report_seconds, help="(%(default)s)")
    flags.add_argument(
        "--status-window-seconds", type=float, default=rhythm.status_window_seconds, help="(%(default)s)"
    )
    flags.add_argument(
        "--gc-seconds",
        type=float,
        default=rhythm.gc_seconds,
        help="how often copies without an assignment are looked at again; 0 for never (%(default)s)",
    )
    flags.add_argument("--hub-qps", type=float, default=HUB_QPS, help="requests to the hub in a second (%(default)s)")
    flags.add_argument("--hub-burst", type=int, default=HUB_BURST, help="and at once (%(default)s)")
    flags.add_argument(
        "--certificate-seconds",
        type=int,
        default=MAX_CERTIFICATE_SECONDS,
        help="how long each certificate is to be good; renewed at 50 to 80 %% of that (%(default)s)",
    )
    flags.add_argument("--log-format", choices=("json", "text"), default="json", help="(%(default)s)")
    flags.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info", help="(%(default)s)"
    )
    return flags


def parse(arguments: Sequence[str] | None = None) -> Options:
    """The options. Raises `BadInput`; argparse ends the process for what it does not know."""
    given = parser().parse_args(arguments)
    rhythm = Rhythm(
        renew_seconds=given.renew_seconds,
        lease_seconds=given.lease_seconds,
        report_seconds=given.report_seconds,
        status_window_seconds=given.status_window_seconds,
        gc_seconds=given.gc_seconds,
    )
    if given.gc_seconds < 0:
        raise BadInput(f"--gc-seconds {given.gc_seconds}: 0 or more")
    if given.hub_qps <= 0 or given.hub_burst < 1:
        raise BadInput("--hub-qps must be above 0, and --hub-burst 1 or more")
    if not 0 < rhythm.renew_seconds < rhythm.lease_seconds:
        raise BadInput(
            f"--renew-seconds {rhythm.renew_seconds} must be above 0 and below --lease-seconds {rhythm.lease_seconds}"
        )
    if not 0 <= rhythm.status_window_seconds <= rhythm.report_seconds:
        raise BadInput("--status-window-seconds must not be longer than --report-seconds")
    if not MIN_TOKEN_SECONDS <= given.certificate_seconds <= MAX_CERTIFICATE_SECONDS:
        raise BadInput(
            f"--certificate-seconds {given.certificate_seconds}: from {MIN_TOKEN_SECONDS} to {MAX_CERTIFICATE_SECONDS}"
        )
    if given.hub_secret is not None and given.hub_secret.count("/") != 1:
        raise BadInput(f"--hub-secret {given.hub_secret}: expected NAMESPACE/NAME")
    return Options(
        cluster=given.cluster,
        hub_kubeconfig=given.hub_kubeconfig,
        hub_secret=given.hub_secret,
        bootstrap_kubeconfig=given.bootstrap_kubeconfig,
        hub_context=given.hub_context,
        kubeconfig=given.kubeconfig,
        context=given.context,
        origin=given.origin,
        health_bind=given.health_bind,
        log_format=given.log_format,
        log_level=given.log_level,
        rhythm=rhythm,
        renewal=Renewal(seconds=given.certificate_seconds),
        hub_qps=given.hub_qps,
        hub_burst=given.hub_burst,
    )
