# SPDX-License-Identifier: Apache-2.0
"""The dispatch engine: pure decisions of the hub (facts in, plan out) and of the agent."""

from __future__ import annotations

from multikueue.dispatch.hub.actions import DispatchPlan, Rule
from multikueue.dispatch.hub.facts import DispatchFacts
from multikueue.dispatch.hub.plan import plan

__all__ = ["DispatchFacts", "DispatchPlan", "Rule", "plan"]
