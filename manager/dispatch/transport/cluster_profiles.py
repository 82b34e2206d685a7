# SPDX-License-Identifier: Apache-2.0
"""A ClusterProfile as a kubeconfig (`docs/spec/kueue-api.md` §5, ClusterProfile).

Matches the access providers that a profile names with those that the Configuration has a program for. The profile names
the server, the Configuration the credentials: a program from a profile is never run. Pure.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import orjson

from multikueue.api.configuration import AccessProvider, ClusterProfile
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ClusterReason
from multikueue.dispatch.protocol.kubeconfigs import KubeconfigProblem, judge

PROFILE_GATE: Final = "MultiKueueClusterProfile"
_NAME: Final = "profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedKubeconfig:
    """A kubeconfig that was judged; `digest` changes when it does."""

    kubeconfig: JsonObject
    digest: str


def access_of(profile: JsonObject, settings: ClusterProfile | None) -> JudgedKubeconfig | KubeconfigProblem:
    """The kubeconfig of the first provider that both sides know, or why there is none."""
    known = {} if settings is None else _by_name(settings)
    if not known:
        return _bad("no access providers are configured in multiKueue.clusterProfile")
    status: JsonObject = profile.get("status") or {}
    # The older name of the field is read as the older name of the setting is.
    offered: list[JsonObject] = status.get("accessProviders") or status.get("credentialProviders") or []
    for entry in offered:
        provider = known.get(str(entry.get("name")))
        if provider is not None:
            return _access(entry.get("cluster") or {}, provider)
    names = ", ".join(sorted(str(entry.get("name")) for entry in offered)) or "none"
    return _bad(f"no configured access provider is offered by the profile, it offers: {names}")


def _access(cluster: JsonObject, provider: AccessProvider) -> JudgedKubeconfig | KubeconfigProblem:
    bare = _kubeconfig(cluster, user={})
    problem = judge(bare)
    if problem is not None:
        return KubeconfigProblem(ClusterReason.BAD_REST_CONFIG, problem.detail)
    program: JsonObject = provider.exec_config.model_dump(mode="json", by_alias=True, exclude_none=True)
    if not program.get("command"):
        return _bad(f"access provider {provider.name!r} has no execConfig.command")
    kubeconfig = _kubeconfig(cluster, user={"exec": program})
    digest = hashlib.sha256(orjson.dumps(kubeconfig, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return JudgedKubeconfig(kubeconfig=kubeconfig, digest=digest)


def _by_name(settings: ClusterProfile) -> dict[str, AccessProvider]:
    return {provider.name: provider for provider in settings.access_providers or settings.credentials_providers}


def _kubeconfig(cluster: JsonObject, *, user: JsonObject) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": user}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }


def _bad(detail: str) -> KubeconfigProblem:
    return KubeconfigProblem(ClusterReason.BAD_CLUSTER_PROFILE, detail)
