# SPDX-License-Identifier: Apache-2.0
"""The job that a pod names by an annotation and a label, where other objects are between the job and its pods.

Both come from the pod template. Whoever may create pods can write them, so that they can only hold a pod back: what
is started is decided by the job.
"""

from __future__ import annotations

from multikueue.api.constants import POD_SUSPENDING_PARENT_ANNOTATION
from multikueue.api.objects import JsonObject
from multikueue.jobs.framework.capabilities import PodHoldingKind
from multikueue.jobs.framework.protocol import JobIntegration


def named_by(pod: JsonObject, kind: JobIntegration | PodHoldingKind) -> str:
    """The name of the job of that kind that a pod names; empty if it names none."""
    label = kind.traits.pod_label
    if not label or not kind.traits.holds_pods:
        return ""
    metadata: JsonObject = pod.get("metadata") or {}
    if (metadata.get("annotations") or {}).get(POD_SUSPENDING_PARENT_ANNOTATION) != kind.framework:
        return ""
    return str((metadata.get("labels") or {}).get(label) or "")
