# SPDX-License-Identifier: Apache-2.0
"""A live explanation as text and as a JSON document.

Owns the texts and the keys. Both have the same content; the text omits empty parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.cli.inspect.live_explanation import LiveExplanation
from multikueue.cli.inspect.requested_capacity import request_document, text_lines
from multikueue.core.timestamps import format_time
from multikueue.dispatch.dispatchers.capacity import FREE_CAPACITY
from multikueue.dispatch.explanation import ClusterExplanation, DispatchExplanation, DispatchState
from multikueue.dispatch.hub.actions import Rule
from multikueue.dispatch.worker.ledger import amount_text
from multikueue.simulation import explanations

RULES: Final[Mapping[Rule, str]] = {
    Rule.GONE: "The workload was deleted; its assignments are removed.",
    Rule.NOT_DISPATCHED: "Its queue has no MultiKueue admission check: it runs on this cluster.",
    Rule.CANNOT_BE_REMOTE: "Its job cannot run on a worker cluster.",
    Rule.FINISHED_OR_NO_QUOTA: "Waiting for quota; no cluster is nominated before.",
    Rule.REMOTE_FINISHED: "It has finished on the selected cluster.",
    Rule.REMOTE_OUT_OF_SYNC: "The remote job does not match the job any more; dispatching again.",
    Rule.REMOTE_EVICTED: "The selected cluster evicted it; dispatching again.",
    Rule.STOPPING: "Stopping; its quota is released when the selected cluster confirms it.",
    Rule.WAITS_FOR_EVICTION: "The admission check is Retry or Rejected; the workload is evicted next.",
    Rule.LOST: "The selected cluster is not reachable.",
    Rule.HELD: "The selected cluster is not reachable; starting elsewhere could run the job twice.",
    Rule.NO_LONGER_THERE: "The assignment is missing on the selected cluster; dispatching again.",
    Rule.REFUSED: "The selected cluster could not start it; dispatching again.",
    Rule.PODS_NOT_STARTED: "Its pods do not start on the selected cluster; dispatching to another one.",
    Rule.DRAINED: "The selected cluster is being drained; dispatching to another one.",
    Rule.FORBIDDEN: "A dispatch policy forbids the selected cluster; dispatching to another one.",
    Rule.GRANTED: "A cluster is selected.",
    Rule.GRANT: "A cluster has reserved capacity and is selected now.",
    Rule.GRANT_AT_ONCE: "The cluster with the best score and enough free capacity is selected now.",
    Rule.TAKE_OVER: "Its job runs already, by the slice that it replaces; that cluster is selected now.",
    Rule.DELIVER: "A cluster is selected; writing its assignment.",
    Rule.NOT_YET: "Waiting for other admission checks.",
    Rule.NOMINATE: "Looking for a cluster.",
    Rule.PROVISION: "Waiting until a worker cluster has provisioned its capacity.",
    Rule.PROVISIONING_FAILED: "No worker cluster could provision its capacity.",
}
_FINISHED: Final = "The workload has finished."
_FORMER_STATES: Final[Mapping[DispatchState, str]] = {
    DispatchState.NO_CAPACITY: "NoRoom",
    DispatchState.HAS_CAPACITY: "HasRoom",
    DispatchState.UNKNOWN_CAPACITY: "UnknownRoom",
}


def lines(explanation: LiveExplanation) -> Iterator[str]:
    """The explanation as lines of text, not wrapped; see `terminal.show_wrapped`."""
    of = f" of {explanation.job}" if explanation.job else ""
    yield f"workload/{explanation.workload}{of} {explanation.summary}"
    if explanation.next_step:
        yield f"Next: {explanation.next_step}{':' if explanation.next_command else ''}"
    if explanation.next_command:
        yield f"  {explanation.next_command}"
    yield ""
    yield "Queue:"
    yield from (f"  {line}".rstrip() for line in explanations.lines(explanation.queue))
    if explanation.checks:
        yield ""
        yield "Admission checks:"
    for check in explanation.checks:
        yield f"  {check.name}: {check.state} since {format_time(check.since)}"
        if check.message:
            yield f"    {check.message}"
        if check.trouble:
            yield f"    {check.trouble}" + (f"; {check.step}" if check.step else "")
        for each in explanation.provisioning:
            if each.check == check.name:
                yield from (f"    {line}" for line in text_lines(each))
    if explanation.dispatch is not None:
        yield ""
        yield from _dispatch(explanation.dispatch)
    if explanation.left_out:
        yield ""
        yield "Not shown, because you lack the permission:"
    for part in explanation.left_out:
        yield f"  {part.what}; needs:"
        yield from (f"    {right}" for right in part.rights)


def _dispatch(seen: DispatchExplanation) -> Iterator[str]:
    yield "Clusters:"
    yield f"  {rule_text(seen)}"
    if seen.next_look is not None:
        yield f"  Next decision: on the next change, at {format_time(seen.next_look)} at the latest."
    for each in seen.clusters:
        nominated = " (nominated)" if each.nominated else ""
        yield f"  {each.cluster}: {each.state}{nominated}"
        if each.reason:
            yield f"    {each.reason}"
        if each.score is not None and str(each.score) not in each.reason:
            yield f"    {each.score}"
    yield f"  Dispatcher {seen.dispatcher}, partition policy {seen.partition_policy}, epoch {seen.epoch}."


def rule_text(seen: DispatchExplanation) -> str:
    """What dispatch does now, as a sentence."""
    if seen.rule is Rule.FINISHED_OR_NO_QUOTA and any(each.state is DispatchState.FINISHED for each in seen.clusters):
        return _FINISHED
    return RULES[seen.rule]


def document(explanation: LiveExplanation) -> JsonObject:
    """The explanation as a document; the keys are stable."""
    seen = explanation.dispatch
    return {
        "workload": str(explanation.workload),
        "job": explanation.job or None,
        "summary": explanation.summary,
        "nextStep": explanation.next_step or None,
        "nextCommand": explanation.next_command or None,
        "queue": explanations.document(explanation.queue),
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
        "provisioning": [request_document(each) for each in explanation.provisioning],
        "dispatch": None
        if seen is None
        else {
            "rule": rule_text(seen),
            "nextLook": _time(seen.next_look),
            "dispatcher": seen.dispatcher,
            "epoch": seen.epoch,
            "clusterName": seen.cluster_name or None,
            "partitionPolicy": str(seen.partition_policy),
            "clusters": [_cluster(each, explanation.flavors) for each in seen.clusters],
        },
        "leftOut": [{"what": part.what, "rights": list(part.rights)} for part in explanation.left_out],
    }


def _cluster(each: ClusterExplanation, flavors: Mapping[str, str]) -> JsonObject:
    score, seen = each.score, each.observation
    return {
        "cluster": each.cluster,
        "state": str(each.state),
        "standing": _FORMER_STATES.get(each.state, str(each.state)),  # the former name and values, for one release
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
        else {"total": round(score.total, 4), "weight": score.weight, "parts": _parts(score.parts)},
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


def _parts(parts: Mapping[str, float]) -> JsonObject:
    return {**parts, **({"room": parts[FREE_CAPACITY]} if FREE_CAPACITY in parts else {})}  # so too for one release


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)
