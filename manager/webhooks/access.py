# SPDX-License-Identifier: Apache-2.0
"""Whether the user behind an admission request may do something else as well.

Asked with a SubjectAccessReview; no answer counts as a denial.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt, printable
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.connection import Response

_log = logging.getLogger(__name__)

_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class AccessReviewer(Protocol):
    """Who may do what."""

    async def refusal(self, user: JsonObject, attributes: JsonObject) -> str:
        """Why that user may not do what `resourceAttributes` describes; empty when they may."""


class AccessReviews:
    """Asks the API server."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def refusal(self, user: JsonObject, attributes: JsonObject) -> str:
        """One review; `user` is the `userInfo` of an admission request."""
        names = {"username": "user", "uid": "uid", "groups": "groups", "extra": "extra"}
        spec = {wanted: user[given] for given, wanted in names.items() if user.get(given)}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {**spec, "resourceAttributes": attributes},
        }
        who = f"user {excerpt(user.get('username'))}"
        try:
            response = await self._client.request("POST", _PATH, body=body)
        except (KubeError, BadInput) as error:
            _log.warning("access review failed user=%s error=%s", who, error)
            return f"cannot check whether {who} may: {printable(str(error))}"
        return "" if _is_allowed(response) else f"{who} may not"


def _is_allowed(response: Response) -> bool:
    """Whether a review says so; whatever else the answer is, it gives no right."""
    try:
        answer = response.json()
    except ValueError:
        return False
    status = answer.get("status") if isinstance(answer, dict) else None
    return isinstance(status, dict) and status.get("allowed") is True
