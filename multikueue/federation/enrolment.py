# SPDX-License-Identifier: Apache-2.0
"""Names that the hub, its administrator and an agent that asks to be let in must agree on.

Owns the names of the objects of a registration, and the limits of what it gives out.
"""

from __future__ import annotations

from typing import Final

from multikueue.api.remoteassignment import mailbox_namespace

SIGNER: Final = "kubernetes.io/kube-apiserver-client"
MAX_CERTIFICATE_SECONDS: Final = 24 * 3600
MAX_TOKEN_SECONDS: Final = 24 * 3600
MIN_TOKEN_SECONDS: Final = 600  # no API server gives out a shorter one


def bootstrap_account(cluster: str) -> str:
    """The ServiceAccount, in the manager's namespace, that a bootstrap token is of."""
    return f"bootstrap-{mailbox_namespace(cluster)}"


def bootstrap_user(namespace: str, cluster: str) -> str:
    """The user that an API server takes the bearer of a bootstrap token for."""
    return f"system:serviceaccount:{namespace}:{bootstrap_account(cluster)}"


def bootstrap_secret(cluster: str, token_id: str) -> str:
    """The Secret that a token is bound to: it ends when the Secret does."""
    return f"{bootstrap_account(cluster)}-{token_id}"


def bootstrap_request(cluster: str, token_id: str) -> str:
    """The one request that a token is for."""
    return f"{mailbox_namespace(cluster)}-{token_id}"


def bootstrap_role(cluster: str) -> str:
    """ClusterRole and binding of the bootstrap account."""
    return f"multikueue:bootstrap:{cluster}"


def renewal_request(cluster: str) -> str:
    """The request by which an agent renews its certificate."""
    return f"{mailbox_namespace(cluster)}-renewal"


def renewal_role(cluster: str) -> str:
    """ClusterRole and binding by which an agent may ask for that."""
    return f"multikueue:agent:{cluster}"
