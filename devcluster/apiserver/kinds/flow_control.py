# SPDX-License-Identifier: Apache-2.0
"""Flow schemas and priority levels; the embedded server stores them, but does not queue requests."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext

_PRECEDENCE: Final = 1000
_SHARES: Final = 30
_QUEUES: Final = {"queues": 64, "handSize": 8, "queueLengthLimit": 50}
_RESPONSE: Final = "spec.limited.limitResponse"


class FlowSchemaBehaviour(KindBehaviour):
    """Flow schemas."""

    has_status = True
    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        if not spec.get("matchingPrecedence"):
            spec["matchingPrecedence"] = _PRECEDENCE


class PriorityLevelBehaviour(KindBehaviour):
    """Priority level configurations."""

    has_status = True
    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        limited, exempt = spec.get("limited"), spec.get("exempt")
        if isinstance(limited, dict):
            limited.setdefault("nominalConcurrencyShares", _SHARES)
            limited.setdefault("lendablePercent", 0)
            queuing = documents.child(limited, "limitResponse").get("queuing")
            if isinstance(queuing, dict):
                for name, default in _QUEUES.items():
                    queuing[name] = queuing.get(name) or default
        if spec.get("type") == "Exempt":
            exempt = spec.setdefault("exempt", {}) if exempt is None else exempt
        if isinstance(exempt, dict):
            exempt.setdefault("nominalConcurrencyShares", 0)
            exempt.setdefault("lendablePercent", 0)

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the answer to requests over the limit."""
        response = documents.child(value, "spec", "limited", "limitResponse")
        kind, queuing = response.get("type"), response.get("queuing")
        if kind == "Queue" and queuing is None:
            text = "must not be empty if limited.limitResponse.type is Limited"
            return [field_errors.required(f"{_RESPONSE}.queuing", text)]
        return []
