# SPDX-License-Identifier: Apache-2.0
"""Probes and metrics of the agent; the series are read from it when they are scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from multikueue.kube.rest.client import KubeClient
from multikueue.kube.serving.serve import add_metrics, add_probes
from worker_agent.app import Agent


class AgentCollector(Collector):
    """The metrics of one agent."""

    def __init__(self, agent: Agent, *, hub: KubeClient, worker: KubeClient) -> None:
        self._agent = agent
        self._clients = {"hub": hub, "worker": worker}

    def collect(self) -> Iterable[Metric]:
        """The current values."""
        agent = self._agent
        phases = GaugeMetricFamily("multikueue_agent_assignments", "Assignments by phase.", labels=["phase"])
        for phase, count in sorted(Counter(agent.reconciler.phases.values()).items()):
            phases.add_metric([str(phase)], count)
        yield phases
        lease = GaugeMetricFamily("multikueue_agent_lease_valid", "Whether the lease of the agent on the hub is valid.")
        lease.add_metric([], float(agent.heartbeat.valid()))
        yield lease
        writes = CounterMetricFamily("multikueue_agent_status_writes", "Statuses written to the hub.")
        writes.add_metric([], agent.status_reporter.writes)
        yield writes
        unsent = GaugeMetricFamily("multikueue_agent_status_unsent", "Statuses that have not reached the hub.")
        unsent.add_metric([], agent.status_reporter.unsent)
        yield unsent
        requests = CounterMetricFamily(
            "multikueue_agent_requests", "API requests sent.", labels=["cluster", "verb", "resource"]
        )
        for cluster, client in self._clients.items():
            for (verb, resource), count in sorted(client.requests_sent.items()):
                requests.add_metric([cluster, verb, resource], count)
        yield requests


def application(agent: Agent, *, hub: KubeClient, worker: KubeClient, registry: CollectorRegistry) -> web.Application:
    """`/healthz`, `/readyz` and `/metrics`; `registry` has the other metrics of the process."""
    registry.register(AgentCollector(agent, hub=hub, worker=worker))
    app = web.Application()
    # The agent is alive if it answers; an unreachable hub is no reason for a restart.
    add_probes(app, live=lambda: None, ready=lambda: agent.problem)
    add_metrics(app, registry)
    return app
