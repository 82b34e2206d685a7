# SPDX-License-Identifier: Apache-2.0
"""The dispatch engine: facts in, plan out; and the agent's side of the mailbox, equally pure."""

from __future__ import annotations

from multikueue.federation.actions import Plan, Rule
from multikueue.federation.facts import Facts
from multikueue.federation.plan import plan

__all__ = ["Facts", "Plan", "Rule", "plan"]
