# SPDX-License-Identifier: Apache-2.0
"""Fields of types that kinds of several groups use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "WireCondition": {
        "type": "The name of the condition.",
        "status": "True, False or Unknown.",
        "reason": "The reason, in CamelCase.",
        "message": "Why, for people.",
        "lastTransitionTime": "When the status changed last.",
        "observedGeneration": "The generation of the object that the condition speaks of.",
    },
    "WireLabelSelector": {
        "matchLabels": "Labels that must have exactly these values.",
        "matchExpressions": "Further demands; all of them must hold.",
    },
    "LabelSelectorRequirement": {
        "key": "The label.",
        "operator": "In, NotIn, Exists or DoesNotExist.",
        "values": "The values for In and NotIn.",
    },
    "WireTaint": {
        "key": "The key.",
        "value": "The value.",
        "effect": "NoSchedule, PreferNoSchedule or NoExecute.",
        "timeAdded": "When the taint was added.",
    },
    "WireToleration": {
        "key": "The key of the taints; empty with Exists: all taints.",
        "operator": "Equal or Exists.",
        "value": "The value of the taints, with Equal.",
        "effect": "The effect of the taints; empty: all effects.",
        "tolerationSeconds": "With NoExecute: for how long the taint is tolerated; empty: for ever.",
    },
}
