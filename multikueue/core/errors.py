# SPDX-License-Identifier: Apache-2.0
"""The errors that more than one layer raises.

A message names the object, the cluster, what was expected and what was found. Errors of one layer, such as responses of
the API server, live in that layer and derive from these.
"""

from __future__ import annotations


class MultikueueError(Exception):
    """Base class of all errors that this project raises."""


class BadInput(MultikueueError, ValueError):
    """Invalid input from a user or another system; the message says where and what would be valid."""


class HubRestored(MultikueueError):
    """The management cluster was restored from a backup; state read from it before is invalid."""


class InvalidTransition(MultikueueError):
    """A state machine got an event that is not in its table."""

    def __init__(self, *, machine: str, state: str, event: str) -> None:
        super().__init__(f"{machine}: no transition from {state} on {event}")
        self.machine = machine
        self.state = state
        self.event = event
