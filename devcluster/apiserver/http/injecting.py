# SPDX-License-Identifier: Apache-2.0
"""`/faults`: faults on demand over HTTP, for clients in other processes.

`GET` shows the faults in force; `PUT {"rules": [...], "clockOffset": seconds, "staleReads": version}` replaces the
given ones; `DELETE` removes all; `POST /faults/compact` forgets the history and `POST /faults/cut-watches?user=NAME`
breaks watches once. Only for `system:masters`; no rule applies to these requests.
"""

from __future__ import annotations

from typing import Final, Protocol

from devcluster.apiserver import errors
from devcluster.apiserver.codec import decoding
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http import faults
from devcluster.apiserver.http.faults import Faults
from devcluster.apiserver.http.requests import Answer, Request, answer
from devcluster.apiserver.registry.reading import Reader
from multikueue.core.errors import BadInput

PATH: Final = "/faults"
_FIELDS: Final = ("rules", "clockOffset", "staleReads")


class Switches(Protocol):
    """The faults that a server can have."""

    context: ServerContext
    reader: Reader
    faults: Faults

    def cut_watches(self, *, user: str = "") -> None:
        """Break all watches, or those of one client."""

    def compact(self) -> None:
        """Forget the history."""


def respond(request: Request, switches: Switches) -> Answer:
    """The answer to a request to `/faults`. Raises `StatusError`."""
    match request.method, request.path.removeprefix(PATH).strip("/"):
        case "POST", "compact":
            switches.compact()
        case "POST", "cut-watches":
            switches.cut_watches(user=request.query.get("user", ""))
        case "PUT", "":
            try:
                _change(decoding.decode(request), switches)
            except BadInput as error:
                raise errors.bad_request(str(error)) from error
        case "DELETE", "":
            _change({"rules": [], "clockOffset": 0, "staleReads": None}, switches)
        case "GET", "":
            pass
        case _, "" | "compact" | "cut-watches":
            raise errors.method_not_allowed()
        case _:
            raise errors.no_resource()
    return answer(200, _shown(switches))


def _change(value: JsonValue, switches: Switches) -> None:
    if not isinstance(value, dict) or not value.keys() <= set(_FIELDS):
        raise BadInput(f"expected an object of {', '.join(_FIELDS)}; got {value!r}")
    # Everything is validated before anything is changed.
    rules = faults.read(value.get("rules", faults.document(switches.faults.rules)))
    offset = value.get("clockOffset", switches.context.clock_offset)
    if isinstance(offset, bool) or not isinstance(offset, int | float):
        raise BadInput(f"clockOffset: expected seconds; got {offset!r}")
    stale = value.get("staleReads", switches.reader.stale)
    newest = switches.context.store.version
    if stale is not None and (isinstance(stale, bool) or not isinstance(stale, int) or not 0 < stale <= newest):
        raise BadInput(f"staleReads: expected a resource version up to {newest}, or null; got {stale!r}")
    switches.faults.rules = rules
    switches.context.clock_offset = float(offset)
    switches.reader.stale = stale


def _shown(switches: Switches) -> JsonObject:
    return {
        "rules": faults.document(switches.faults.rules),
        "clockOffset": switches.context.clock_offset,
        "staleReads": switches.reader.stale,
    }
