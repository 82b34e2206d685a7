# SPDX-License-Identifier: Apache-2.0
"""`/metrics` of the API server: requests by verb, resource and code, watchers, stored objects, and its process.

Names and labels are those of a real server, so that dashboards and scrape configurations work. What takes time to
measure (latencies, sizes) is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import Answer, Reply, Request
from devcluster.apiserver.registry.watching import WatchFeed

if TYPE_CHECKING:
    from prometheus_client import Metric

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_VERBS: Final = {"create": "POST", "update": "PUT"}
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
_REQUEST: Final = ("verb", "group", "version", "resource", "subresource", "scope", "code")


class ServerMetrics:
    """Counts the requests of one server."""

    def __init__(self, context: ServerContext, feeds: Collection[WatchFeed]) -> None:
        self._context = context
        self._feeds = feeds
        self._requests: Counter[tuple[str, ...]] = Counter()

    def count(self, request: Request, reply: Reply) -> None:
        """Count an answered request; a stream counts when it begins.

        Clients can ask for any path by any method, so that only what is served has labels of its own.
        """
        code = str(reply.status) if isinstance(reply, Answer) else "200"
        target = request.target
        kind = None if target is None else self._context.registry.find(target.group, target.version, target.resource)
        if target is None or kind is None:
            method = request.method if request.method in _METHODS else "OTHER"
            self._requests[method, "", "", "", "", "", code] += 1
            return
        verb = _VERBS.get(request.verb, request.verb.upper())
        subresource = target.subresource if target.subresource in kind.subresources else ""
        scope = "resource" if target.name else "namespace" if target.namespace else "cluster"
        self._requests[verb, kind.group, kind.version, kind.plural, subresource, scope, code] += 1

    def page(self) -> Answer:
        """The metrics in Prometheus' text format."""
        # Imported with the first scrape: most clusters are never scraped, and all of them start.
        from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        return Answer(200, generate_latest(registry), _TEXT)

    def collect(self) -> Iterable[Metric]:
        """The metrics of now, for `prometheus_client`."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        requests = CounterMetricFamily("apiserver_request", "Answered requests to the API server.", labels=_REQUEST)
        for labels, number in self._requests.items():
            requests.add_metric(labels, number)
        yield requests
        watches = GaugeMetricFamily(
            "apiserver_registered_watchers", "Open watches by resource.", labels=("group", "version", "resource")
        )
        targets = Counter(feed.request.target[:3] for feed in self._feeds if feed.request.target is not None)
        for place, number in targets.items():
            watches.add_metric(place, number)
        yield watches
        objects = GaugeMetricFamily(
            "apiserver_resource_objects", "Stored objects by resource.", labels=("group", "resource")
        )
        for kind in self._context.registry.stored():
            objects.add_metric([kind.group, kind.plural], len(self._context.store.collection(kind.collection)))
        yield objects
