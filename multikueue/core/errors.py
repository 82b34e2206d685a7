# SPDX-License-Identifier: Apache-2.0
"""The root of our error tree.

Owns the classes that more than one layer raises. A message names the object, the cluster, what was expected and
what was found. Errors of one layer (an answer of the API server, say) live in that layer and derive from these.
"""

from __future__ import annotations


class MultikueueError(Exception):
    """Anything this project raises on purpose."""


class BadInput(MultikueueError, ValueError):
    """Something a person wrote is wrong; the message says where it stands and what would be right."""


class PutBack(MultikueueError):
    """The management cluster is what it was some time ago: all that was read of it since is void."""


class InvalidTransition(MultikueueError):
    """A state machine was handed an event that its table has no row for."""

    def __init__(self, *, machine: str, state: str, event: str, story: str = "") -> None:
        text = f"{machine}: no transition from {state} on {event}"
        super().__init__(f"{text}; story: {story}" if story else text)
        self.machine = machine
        self.state = state
        self.event = event
