# SPDX-License-Identifier: Apache-2.0
"""Object names and limits of a registration, shared by the hub, its administrator and the agent."""

from __future__ import annotations

from typing import Final

from multikueue.api.remoteassignment import mailbox_namespace

SIGNER: Final = "kubernetes.io/kube-apiserver-client"
MAX_CERTIFICATE_SECONDS: Final = 24 * 3600
MAX_TOKEN_SECONDS: Final = 24 * 3600
MIN_TOKEN_SECONDS: Final = 600  # the minimum of API servers
MAX_OPEN_REQUESTS: Final = 8
"""Approved requests of one agent at a time; each restart of the agent adds one."""


def bootstrap_account(cluster: str) -> str:
    """The ServiceAccount of a bootstrap token, in the manager's namespace."""
    return f"bootstrap-{mailbox_namespace(cluster)}"


def bootstrap_user(namespace: str, cluster: str) -> str:
    """The user name of a bootstrap token."""
    return f"system:serviceaccount:{namespace}:{bootstrap_account(cluster)}"


def bootstrap_secret(cluster: str, token_id: str) -> str:
    """The Secret that a token is bound to: deleting it revokes the token."""
    return f"{bootstrap_account(cluster)}-{token_id}"


def bootstrap_request(cluster: str, token_id: str) -> str:
    """The only request that a token may create."""
    return f"{mailbox_namespace(cluster)}-{token_id}"


def bootstrap_role(cluster: str) -> str:
    """ClusterRole and binding of the bootstrap account."""
    return f"multikueue:bootstrap:{cluster}"


def renewal_request(cluster: str, nonce: str = "") -> str:
    """The request by which an agent renews its certificate; a name that ends in a `nonce` cannot be occupied.

    Roles created by versions before 0.2 are limited to the name without one.
    """
    return f"{mailbox_namespace(cluster)}-renewal" + (f"-{nonce}" if nonce else "")


def renewal_role(cluster: str) -> str:
    """ClusterRole and binding that allow an agent to create it."""
    return f"multikueue:agent:{cluster}"
