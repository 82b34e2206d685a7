# SPDX-License-Identifier: Apache-2.0
"""Whether an AdmissionCheck of the MultiKueue controller is Active (`docs/spec/multikueue.md §1.3`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from multikueue.api.reasons import AdmissionCheckReason
from multikueue.federation import messages


@dataclass(frozen=True, slots=True)
class CheckHealth:
    """The Active condition that the check is to have."""

    active: bool
    reason: AdmissionCheckReason
    message: str


def judge(
    clusters: Sequence[str] | None, active: Mapping[str, bool], *, problem: str = "", held: str = ""
) -> CheckHealth:
    """The health of a check.

    `clusters` are those of its MultiKueueConfig, or None when there is none to be read, and then `problem` says why.
    `active` tells of each MultiKueueCluster that exists whether it is Active. `held` says why lost clusters keep their
    work.
    """
    if clusters is None:
        return CheckHealth(False, AdmissionCheckReason.BAD_CONFIG, problem)
    if not clusters:
        return CheckHealth(False, AdmissionCheckReason.NO_USABLE_CLUSTERS, messages.NO_CLUSTERS)
    missing = [name for name in clusters if name not in active]
    inactive = [name for name in clusters if active.get(name) is False]
    if not missing and not inactive:
        return CheckHealth(True, AdmissionCheckReason.ACTIVE, messages.CHECK_ACTIVE)
    parts = [
        f"{kind} clusters: [{' '.join(names)}]"
        for kind, names in (("Missing", missing), ("Inactive", inactive))
        if names
    ]
    message = "; ".join(filter(None, (", ".join(parts), held)))
    if len(missing) + len(inactive) == len(clusters):
        return CheckHealth(False, AdmissionCheckReason.NO_USABLE_CLUSTERS, message)
    return CheckHealth(True, AdmissionCheckReason.SOME_ACTIVE_CLUSTERS, message)
