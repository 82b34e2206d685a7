# SPDX-License-Identifier: Apache-2.0
"""Which kubeconfigs a MultiKueueCluster may use (`docs/spec/multikueue.md §1.4`).

A parsed kubeconfig is rejected if it refers to files of the manager, programs or passwords, or disables TLS
verification. Reading and parsing are up to the caller.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlsplit

from multikueue.api.reasons import ClusterReason

_HOST: Final = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*\.?")
_FORBIDDEN_USER: Final = {
    "tokenFile": "tokenFile is not allowed",
    "username": "basic auth is not allowed",
    "password": "basic auth is not allowed",
    "auth-provider": "auth-provider is not allowed",
    "exec": "exec is not allowed",
}
_FORBIDDEN_CLUSTER: Final = {
    "certificate-authority": "certificate-authority file is not allowed, inline the data",
    "insecure-skip-tls-verify": "insecure-skip-tls-verify is not allowed",
}


@dataclass(frozen=True, slots=True)
class KubeconfigProblem:
    """Why a kubeconfig is rejected, as the reason and message of the cluster's Active condition."""

    reason: ClusterReason
    detail: str

    @property
    def message(self) -> str:
        """The message of the condition."""
        return f"load client config failed: {self.detail}"


def judge(kubeconfig: object) -> KubeconfigProblem | None:
    """None for a kubeconfig that may be used; `kubeconfig` is the decoded YAML."""
    if not isinstance(kubeconfig, Mapping):
        return _bad("not a kubeconfig")
    context = _named(kubeconfig, "contexts", str(kubeconfig.get("current-context") or ""), "context")
    if context is None:
        return _bad("current-context names no context")
    cluster = _named(kubeconfig, "clusters", str(context.get("cluster") or ""), "cluster")
    if cluster is None:
        return _bad(f'context names cluster "{context.get("cluster")}", which does not exist')
    user_name = str(context.get("user") or "")
    user = _named(kubeconfig, "users", user_name, "user") if user_name else {}
    if user is None:
        return _bad(f'context names user "{user_name}", which does not exist')
    for fields, section in ((_FORBIDDEN_USER, user), (_FORBIDDEN_CLUSTER, cluster)):
        for field, text in fields.items():
            if section.get(field):
                return KubeconfigProblem(ClusterReason.INSECURE_KUBE_CONFIG, text)
    return _judge_server(str(cluster.get("server") or ""))


def _judge_server(server: str) -> KubeconfigProblem | None:
    if not server:
        return KubeconfigProblem(ClusterReason.INSECURE_KUBE_CONFIG, "server is empty")
    try:
        url = urlsplit(server)
        host, _ = url.hostname, url.port
    except ValueError as error:
        return _bad(f'server "{server}": {error}')
    if url.scheme not in ("https", "http") or not host:
        return _bad(f'server "{server}" is not a URL')
    if _is_address(host) or _HOST.fullmatch(host):
        return None
    return _bad(f'server "{server}": "{host}" is neither an IP address nor a DNS name')


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _named(kubeconfig: Mapping[str, object], section: str, name: str, field: str) -> Mapping[str, object] | None:
    entries = kubeconfig.get(section)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(field), Mapping):
            return cast(Mapping[str, object], entry[field])
    return None


def _bad(detail: str) -> KubeconfigProblem:
    return KubeconfigProblem(ClusterReason.BAD_KUBE_CONFIG, detail)
