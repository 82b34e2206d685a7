# SPDX-License-Identifier: Apache-2.0
"""A live explanation as a page for a person and as a document for a program.

Owns the words and the names. Both show the same; the page leaves out what says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from multikueue.api.meta import JsonObject
from multikueue.cli.explain import document as queue_document
from multikueue.cli.live_explanation import LiveExplanation
from multikueue.core.timestamps import format_time
from multikueue.federation.ledger import amount_text
from multikueue.federation.outlook import ClusterOutlook, Outlook
from multikueue.simulation import explanations


def text(explanation: LiveExplanation) -> str:
    """The page."""
    return "\n".join(_lines(explanation))


def _lines(explanation: LiveExplanation) -> Iterator[str]:
    of = f" of {explanation.job}" if explanation.job else ""
    yield f"workload/{explanation.workload}{of} {explanation.summary}"
    yield ""
    yield "Queue:"
    yield from (f"  {line}".rstrip() for line in explanations.text(explanation.queue).splitlines())
    if explanation.checks:
        yield ""
        yield "Admission checks:"
    for check in explanation.checks:
        said = f": {check.message}" if check.message else ""
        yield f"  {check.name}: {check.state} since {format_time(check.since)}{said}"
        if check.trouble:
            yield f"    {check.trouble}"
    if explanation.dispatch is not None:
        yield ""
        yield from _dispatch(explanation.dispatch)


def _dispatch(seen: Outlook) -> Iterator[str]:
    again = f", looked at again at {format_time(seen.next_look)} at the latest" if seen.next_look is not None else ""
    yield f"Clusters (epoch {seen.epoch}, {seen.dispatcher}, policy {seen.partition_policy}{again}):"
    yield f"  Rule {seen.rule.value}."
    width = max((len(each.cluster) for each in seen.clusters), default=0)
    for each in seen.clusters:
        score = f" [{each.score}]" if each.score is not None and str(each.score) not in each.reason else ""
        nominated = " (nominated)" if each.nominated else ""
        yield f"  {each.cluster:{width}}  {each.standing:12}  {each.reason}{score}{nominated}".rstrip()


def document(explanation: LiveExplanation) -> JsonObject:
    """The document."""
    seen = explanation.dispatch
    return {
        "workload": str(explanation.workload),
        "job": explanation.job or None,
        "summary": explanation.summary,
        "queue": queue_document(explanation.queue),
        "admissionChecks": [
            {
                "name": check.name,
                "state": str(check.state),
                "message": check.message,
                "since": format_time(check.since),
                "trouble": check.trouble or None,
            }
            for check in explanation.checks
        ],
        "dispatch": None
        if seen is None
        else {
            "rule": seen.rule.value,
            "nextLook": _time(seen.next_look),
            "dispatcher": seen.dispatcher,
            "epoch": seen.epoch,
            "clusterName": seen.cluster_name or None,
            "partitionPolicy": str(seen.partition_policy),
            "clusters": [_cluster(each, explanation.flavors) for each in seen.clusters],
        },
    }


def _cluster(each: ClusterOutlook, flavors: Mapping[str, str]) -> JsonObject:
    score, seen = each.score, each.observation
    return {
        "cluster": each.cluster,
        "standing": str(each.standing),
        "reason": each.reason,
        "nominated": each.nominated,
        "lostSince": _time(each.lost_since),
        "avoidedUntil": _time(each.avoided_until),
        "short": [
            {
                "resource": lack.resource,
                "amount": amount_text(lack.resource, lack.amount),
                "flavor": flavors.get(lack.resource),
                "onOneNode": lack.on_one_node,
            }
            for lack in each.lacks
        ],
        "score": None
        if score is None
        else {"total": round(score.total, 4), "weight": score.weight, "parts": dict(score.parts)},
        "copy": None
        if seen is None
        else {
            "epoch": seen.epoch,
            "intent": str(seen.intent),
            "answered": seen.answered,
            "phase": str(seen.phase),
            "reason": seen.reason,
            "message": seen.message,
        },
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)
