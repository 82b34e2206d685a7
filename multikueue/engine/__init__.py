# SPDX-License-Identifier: Apache-2.0
"""The admission engine: pure and synchronous, values in, decisions out (`docs/spec/engine.md`)."""

from __future__ import annotations

from multikueue.engine.decisions import Cycle, Decision, Outcome, RequeueReason, Victim
from multikueue.engine.engine import Engine
from multikueue.engine.settings import Gates, Settings

__all__ = ["Cycle", "Decision", "Engine", "Gates", "Outcome", "RequeueReason", "Settings", "Victim"]
