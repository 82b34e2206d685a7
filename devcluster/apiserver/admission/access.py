# SPDX-License-Identifier: Apache-2.0
"""The value of `authorizer` in expressions about a write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.auth.rbac import Authorizer
from devcluster.apiserver.cel.library.authorizer import AccessAnswer, Attributes, AuthorizerValue
from devcluster.apiserver.http.requests import User

_ACCOUNTS: Final = "system:serviceaccounts"


@dataclass(frozen=True, slots=True)
class UserAccess:
    """What one user may do, by the roles of the cluster."""

    authorizer: Authorizer
    user: User

    def decide(self, verb: str, attributes: Attributes) -> AccessAnswer:
        """Whether the user may do that."""
        if attributes.path:
            found = self.authorizer.decide_path(self.user, verb=verb, path=attributes.path)
        else:
            found = self.authorizer.decide(
                self.user,
                verb=verb,
                group=attributes.group,
                resource=attributes.resource,
                namespace=attributes.namespace,
                name=attributes.name,
                sub=attributes.subresource,
            )
        return AccessAnswer(found.allowed, found.reason)

    def of_account(self, namespace: str, name: str) -> UserAccess:
        """What a service account may do."""
        groups = (_ACCOUNTS, f"{_ACCOUNTS}:{namespace}", "system:authenticated")
        return UserAccess(self.authorizer, User(f"system:serviceaccount:{namespace}:{name}", groups))


def authorizer_value(authorizer: Authorizer, review: Review) -> AuthorizerValue:
    """`authorizer` for the requester of a write."""
    request = Attributes(
        group=review.kind.group,
        resource=review.kind.plural,
        subresource=review.subresource,
        namespace=review.namespace,
        name=review.name,
    )
    return AuthorizerValue(UserAccess(authorizer, review.user), request)
