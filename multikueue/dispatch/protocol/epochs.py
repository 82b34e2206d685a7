# SPDX-License-Identifier: Apache-2.0
"""The epoch of a dispatch: one more than the number of evictions (ADR 0002).

It needs no write of its own: every Retry ends in an eviction, and evictions are counted in the Workload. The annotation
is a minimum for a workload whose counters were lost, as after a restore. It is read only from Workloads, which users
without rights to Workloads cannot write, and limited, so that evictions can still be counted above it.

A slice of an elastic job that replaces another goes on with the epoch of that one, since the remote job does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multikueue.api.constants import EPOCH_ANNOTATION, FIRST_EPOCH_ANNOTATION
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned


def epoch_of(eviction_counts: Iterable[int], annotations: Mapping[str, str]) -> int:
    """One more than the evictions so far, of a slice in addition to those before it; at least the annotation.

    Both annotations are numbers up to `MAX_INT32`; an invalid one is ignored.
    """
    first = _number(annotations, FIRST_EPOCH_ANNOTATION)
    return max(max(1, first) + sum(eviction_counts), _number(annotations, EPOCH_ANNOTATION))


def _number(annotations: Mapping[str, str], key: str) -> int:
    """The annotation; 0 if it is missing or invalid."""
    text = annotations.get(key)
    if text is None:
        return 0
    try:
        return parse_unsigned(text, field=key, maximum=MAX_INT32)
    except BadInput:
        return 0


def marked_epoch(annotations: Mapping[str, str]) -> int:
    """The epoch in the annotation of a remote job; 0, older than any, if it is missing or invalid.

    Every writer of the remote job can change it, so it only affects that job.
    """
    try:
        return parse_unsigned(annotations.get(EPOCH_ANNOTATION, ""), field=EPOCH_ANNOTATION)
    except BadInput:
        return 0
