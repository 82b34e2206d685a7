# SPDX-License-Identifier: Apache-2.0
"""What the webhook of Workloads refuses, which the servers of a seed do not ask.

Only reclaimable pods: a manager reviews everything else that it writes of a Workload before it sends it.
"""

from __future__ import annotations

from typing import Final

import orjson

from devcluster.apiserver.http.requests import Answer, Request
from devcluster.apiserver.server import ApiServer
from multikueue.api import featuregates
from multikueue.api.constants import RECLAIMABLE_PODS_FIELD_MANAGER
from multikueue.api.resource import WORKLOADS
from multikueue.api.validation import validate_workload
from multikueue.api.workload import Workload

_BY_RECLAIMING: Final = f"fieldManager={RECLAIMABLE_PODS_FIELD_MANAGER}"


def refusal(server: ApiServer, request: Request) -> Answer | None:
    """The answer to a request that the webhook refuses; None if it does not."""
    if _BY_RECLAIMING not in request.query_text:
        return None
    namespace, _, name = request.path.partition("/namespaces/")[2].split("/")[:3]
    stored = server.context.get(WORKLOADS.qualified, f"{namespace}/{name}")
    if stored is None:
        return None
    wanted = {**stored, "status": {**(stored.get("status") or {}), **orjson.loads(request.body)["status"]}}
    errors = validate_workload(Workload.model_validate(wanted), Workload.model_validate(stored), gate=_elastic)
    if not errors:
        return None
    message = f"Workload {name} is invalid: {'; '.join(map(str, errors))}"
    status = {"kind": "Status", "status": "Failure", "message": message, "reason": "Invalid", "code": 422}
    return Answer(422, orjson.dumps(status))


def _elastic(gate: str) -> bool:
    return gate == featuregates.ELASTIC_JOBS or featuregates.default(gate)
