# SPDX-License-Identifier: Apache-2.0
"""The command line of the agent."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from multikueue.api.constants import AGENT_NAMESPACE, BATCH_JOB_FRAMEWORK, DEFAULT_ORIGIN, PodSecurityLevel
from multikueue.core.errors import BadInput
from multikueue.dispatch.hub.health import MAX_LEASE
from multikueue.dispatch.policy.dispatch_policy import PolicyRules, agent_rules, patterns_of
from multikueue.dispatch.protocol.enrolment import MAX_CERTIFICATE_SECONDS, MIN_TOKEN_SECONDS
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from worker_agent.hub.heartbeat import AgentIntervals
from worker_agent.kinds import read_declarations, served_integrations

HUB_QPS: Final = 50.0
HUB_BURST: Final = 100
"""Enough for a burst of short Jobs, and few enough that fifty agents do not overload the hub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """The part of a certificate's lifetime after which it is renewed, and the lifetime of the next one."""

    earliest: float = 0.5
    latest: float = 0.8
    seconds: int = MAX_CERTIFICATE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """The values of the flags."""

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
    intervals: AgentIntervals = field(default_factory=AgentIntervals)
    renewal: Renewal = field(default_factory=Renewal)
    hub_qps: float = HUB_QPS
    hub_burst: int = HUB_BURST
    namespace: str = AGENT_NAMESPACE
    policy: PolicyRules = field(default_factory=agent_rules)
    integrations: tuple[JobIntegration, ...] = (BATCH_JOB,)


def parser() -> argparse.ArgumentParser:
    """The flags of `python -m worker_agent`."""
    intervals = AgentIntervals()
    flags = argparse.ArgumentParser(prog="mk-worker-agent", description="The agent of a worker cluster.")
    flags.add_argument(
        "--cluster", required=True, metavar="NAME", help="the name of the MultiKueueCluster of this cluster"
    )
    identity = flags.add_mutually_exclusive_group(required=True)
    identity.add_argument(
        "--hub-kubeconfig", metavar="FILE", help="kubeconfig of the management cluster, with the identity of this agent"
    )
    identity.add_argument(
        "--hub-secret", metavar="NAMESPACE/NAME", help="the same, in a Secret of this cluster instead of a file"
    )
    flags.add_argument(
        "--bootstrap-kubeconfig",
        metavar="FILE",
        help="output of `mkctl cluster register`: requests the identity if there is none yet",
    )
    flags.add_argument("--hub-context", help="context of the hub kubeconfig")
    flags.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig of this cluster; by default the service account of the pod"
    )
    flags.add_argument("--context", help="context of --kubeconfig")
    flags.add_argument("--origin", default=DEFAULT_ORIGIN, help="multiKueue.origin of the manager (%(default)s)")
    flags.add_argument(
        "--namespace",
        default=AGENT_NAMESPACE,
        metavar="NAME",
        help="namespace of this agent: no Job is created there, in kube-* or next to --hub-secret (%(default)s)",
    )
    flags.add_argument(
        "--frameworks",
        default=BATCH_JOB_FRAMEWORK,
        metavar="NAMES",
        help="comma-separated kinds of jobs to serve, as in integrations.frameworks of the manager (%(default)s)",
    )
    flags.add_argument(
        "--job-kinds", metavar="FILE", help="declarations of further kinds for --frameworks, as in the Configuration"
    )
    flags.add_argument(
        "--external-frameworks",
        default="",
        metavar="NAMES",
        help="kinds that another controller queues, as in multiKueue.externalFrameworks of the manager:"
        " Kind.version.group, with =plural after one whose plural is unusual",
    )
    for flag, what in (
        ("--allowed-namespaces", "comma-separated patterns (* and ?) of the only namespaces in which Jobs are created"),
        ("--denied-namespaces", "patterns of namespaces in which no Job is created"),
        ("--allowed-service-accounts", "patterns of the only service accounts that pods of Jobs may use"),
    ):
        flags.add_argument(flag, metavar="PATTERNS", help=what)
    flags.add_argument(
        "--pod-security",
        choices=tuple(map(str, PodSecurityLevel)),
        default=str(PodSecurityLevel.PRIVILEGED),
        help="the Pod Security level that Jobs must meet (%(default)s)",
    )
    flags.add_argument("--health-bind", default="0", metavar="ADDR", help="HOST:PORT of probes and metrics; 0 for none")
    flags.add_argument(
        "--renew-seconds", type=float, default=intervals.renew_seconds, help="interval of lease renewals (%(default)s)"
    )
    flags.add_argument(
        "--lease-seconds", type=int, default=intervals.lease_seconds, help="duration of the lease (%(default)s)"
    )
    flags.add_argument(
        "--report-seconds",
        type=float,
        default=intervals.report_seconds,
        help="longest time between two ClusterReports (%(default)s)",
    )
    flags.add_argument(
        "--status-window-seconds",
        type=float,
        default=intervals.status_window_seconds,
        help="shortest time between two writes of a ClusterReport or of progress (%(default)s)",
    )
    flags.add_argument(
        "--gc-seconds",
        type=float,
        default=intervals.gc_seconds,
        help="interval of garbage collection of jobs without an assignment; 0 for never (%(default)s)",
    )
    flags.add_argument("--hub-qps", type=float, default=HUB_QPS, help="requests per second to the hub (%(default)s)")
    flags.add_argument("--hub-burst", type=int, default=HUB_BURST, help="burst of requests to the hub (%(default)s)")
    flags.add_argument(
        "--certificate-seconds",
        type=int,
        default=MAX_CERTIFICATE_SECONDS,
        help="lifetime of each certificate; renewed after 50 to 80 %% of it (%(default)s)",
    )
    flags.add_argument(
        "--log-format", choices=("json", "text"), default="json", help="format of log lines (%(default)s)"
    )
    flags.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="least level that is logged (%(default)s)",
    )
    return flags


def parse(arguments: Sequence[str] | None = None) -> AgentOptions:
    """The options. Raises `BadInput`; argparse exits on unknown flags."""
    given = parser().parse_args(arguments)
    intervals = AgentIntervals(
        renew_seconds=given.renew_seconds,
        lease_seconds=given.lease_seconds,
        report_seconds=given.report_seconds,
        status_window_seconds=given.status_window_seconds,
        gc_seconds=given.gc_seconds,
    )
    if given.gc_seconds < 0:
        raise BadInput(f"--gc-seconds {given.gc_seconds}: must be 0 or more")
    if given.hub_qps <= 0 or given.hub_burst < 1:
        raise BadInput("--hub-qps must be above 0, and --hub-burst 1 or more")
    if not 0 < intervals.renew_seconds < intervals.lease_seconds:
        raise BadInput(
            f"--renew-seconds {intervals.renew_seconds} must be above 0 and below"
            f" --lease-seconds {intervals.lease_seconds}"
        )
    most = int(MAX_LEASE.total_seconds())
    if intervals.lease_seconds > most:
        raise BadInput(f"--lease-seconds {intervals.lease_seconds}: must be at most {most}, the limit of the hub")
    if not 0 <= intervals.status_window_seconds <= intervals.report_seconds:
        raise BadInput("--status-window-seconds must not be longer than --report-seconds")
    if not MIN_TOKEN_SECONDS <= given.certificate_seconds <= MAX_CERTIFICATE_SECONDS:
        raise BadInput(
            f"--certificate-seconds {given.certificate_seconds}: from {MIN_TOKEN_SECONDS} to {MAX_CERTIFICATE_SECONDS}"
        )
    if given.hub_secret is not None and given.hub_secret.count("/") != 1:
        raise BadInput(f"--hub-secret {given.hub_secret}: expected NAMESPACE/NAME")
    return AgentOptions(
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
        intervals=intervals,
        renewal=Renewal(seconds=given.certificate_seconds),
        hub_qps=given.hub_qps,
        hub_burst=given.hub_burst,
        namespace=given.namespace,
        policy=_policy(given),
        integrations=served_integrations(
            _listed(given.frameworks),
            declarations=() if given.job_kinds is None else read_declarations(Path(given.job_kinds)),
            external=_listed(given.external_frameworks),
        ),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _policy(given: argparse.Namespace) -> PolicyRules:
    def patterns(flag: str) -> tuple[str, ...]:
        text = getattr(given, flag.removeprefix("--").replace("-", "_"))
        return () if text is None else patterns_of(text, field=flag)

    # A pod that can read the Secret of the identity can act as the agent.
    secret_namespace = () if given.hub_secret is None else (given.hub_secret.partition("/")[0],)
    return agent_rules(
        namespaces=(given.namespace, *secret_namespace),
        allowed_namespaces=patterns("--allowed-namespaces"),
        denied_namespaces=patterns("--denied-namespaces"),
        service_accounts=patterns("--allowed-service-accounts"),
        pod_security=PodSecurityLevel(given.pod_security),
    )
