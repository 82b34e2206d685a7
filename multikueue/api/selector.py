# SPDX-License-Identifier: Apache-2.0
"""Wire selectors, taints and tolerations to the values of `core` that can match."""

from __future__ import annotations

from multikueue.api import meta
from multikueue.core import selectors, taints


def core_selector(selector: meta.WireLabelSelector) -> selectors.LabelSelector:
    """The selector as a value. Raises `BadInput` for an expression that cannot be right."""
    labels = selectors.LabelSelector.of(selector.match_labels).requirements
    expressions = [selectors.Requirement(e.key, e.operator, e.values) for e in selector.match_expressions]
    return selectors.LabelSelector((*labels, *expressions))


def core_taint(taint: meta.WireTaint) -> taints.Taint:
    """The taint as a value."""
    return taints.Taint(taint.key, taint.value, taint.effect)


def core_toleration(toleration: meta.WireToleration) -> taints.Toleration:
    """The toleration as a value; an absent operator is Equal."""
    return taints.Toleration(toleration.key, toleration.operator or "Equal", toleration.value, toleration.effect)
