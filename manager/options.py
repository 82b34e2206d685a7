# SPDX-License-Identifier: Apache-2.0
"""The command line of the manager.

Policy is set in the Configuration file. A flag that is given takes precedence over the file, so that a devcluster can
change ports without writing one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DISABLED: Final = "0"
"""As an address: do not listen."""

EVENT_QPS: Final = 10.0
"""An hour of it, as long as API servers keep events, is some 40 MB of etcd; a Job costs two to six."""

EVENT_BURST: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """The command line; None: the Configuration decides."""

    config: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    webhook_url: str | None = None
    webhook_service: str | None = None
    webhook_bind: str | None = None
    webhooks: bool = True
    visibility_url: str | None = None
    visibility_bind: str | None = None
    leader_election: bool | None = None
    job_integrations: bool = True
    metrics_bind: str | None = None
    metrics_secure: bool | None = None
    metrics_cert_dir: str | None = None
    metrics_authorization: bool | None = None
    health_bind: str | None = None
    identity: str | None = None
    event_qps: float = EVENT_QPS
    event_burst: int = EVENT_BURST
    log_format: str = "text"
    log_level: str = "info"


def parser() -> argparse.ArgumentParser:
    """The flags of `python -m manager`."""
    flags = argparse.ArgumentParser(prog="mk-manager", description="The multikueue manager.")
    flags.add_argument("--config", metavar="FILE", help="a config.kueue.x-k8s.io Configuration (v1beta1 or v1beta2)")
    flags.add_argument(
        "--kubeconfig", metavar="FILE", help="the management cluster; default: the pod's service account"
    )
    flags.add_argument("--context", help="the context of the kubeconfig")
    flags.add_argument("--namespace", help="where the manager keeps its objects (kueue-system)")
    address = flags.add_mutually_exclusive_group()
    address.add_argument(
        "--webhook-url", metavar="URL", help="how the API server reaches the webhooks: https://HOST:PORT"
    )
    address.add_argument("--webhook-service", metavar="NAME", help="the Service in front of the webhooks")
    flags.add_argument("--webhook-bind", metavar="ADDR", help="where the webhooks listen: HOST:PORT")
    flags.add_argument("--no-webhooks", dest="webhooks", action="store_false", help="serve and install no webhooks")
    flags.add_argument(
        "--visibility-url",
        metavar="URL",
        help="how the API server reaches the visibility API: https://HOST:PORT (the host of --webhook-url)",
    )
    flags.add_argument(
        "--visibility-bind", metavar="ADDR", help="where the visibility API listens: HOST:PORT; 0 for none (:8082)"
    )
    flags.add_argument(
        "--leader-elect",
        dest="leader_election",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="elect a leader: only one of several managers acts at a time",
    )
    flags.add_argument(
        "--no-job-integrations",
        dest="job_integrations",
        action="store_false",
        help="do not manage jobs; another controller creates the Workloads",
    )
    flags.add_argument("--metrics-bind", metavar="ADDR", help="HOST:PORT of /metrics; 0 for none (:8080)")
    flags.add_argument(
        "--metrics-secure",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="serve /metrics over TLS (on :8443), with the webhooks' certificate unless --metrics-cert-dir is given",
    )
    flags.add_argument("--metrics-cert-dir", metavar="FOLDER", help="tls.crt and tls.key for /metrics")
    flags.add_argument(
        "--metrics-authorization",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="serve /metrics only to authorized users, by TokenReview and SubjectAccessReview",
    )
    flags.add_argument("--health-bind", metavar="ADDR", help="HOST:PORT of /healthz and /readyz; 0 for none (:8081)")
    flags.add_argument(
        "--identity", help="the identity of this process in the leader election (host name and a random part)"
    )
    flags.add_argument(
        "--event-qps",
        type=_rate,
        metavar="N",
        default=EVENT_QPS,
        help="limit of Normal events per second, and a tenth of it for those that conditions show too; "
        "warnings are not limited; 0 for no limit (%(default)s)",
    )
    flags.add_argument(
        "--event-burst",
        type=_burst,
        metavar="N",
        default=EVENT_BURST,
        help="burst of Normal events above --event-qps (%(default)s)",
    )
    flags.add_argument("--log-format", choices=("text", "json"), default="text")
    flags.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return flags


def parse(arguments: Sequence[str]) -> ManagerOptions:
    """The options; for an unknown flag argparse prints usage and exits with 2."""
    return ManagerOptions(**vars(parser().parse_args(arguments)))


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 <= rate < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a rate: a number of 0 or more is expected")
    return rate


def _burst(text: str) -> int:
    burst = int(text)
    if burst < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a burst: a whole number of 1 or more is expected")
    return burst
