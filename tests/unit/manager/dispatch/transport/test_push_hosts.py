# SPDX-License-Identifier: Apache-2.0
"""Which kubeconfig the agents that the manager hosts go on with."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from manager.context import ManagerContext
from manager.dispatch.transport.cluster_profiles import JudgedKubeconfig
from manager.dispatch.transport.push_hosts import PushHosts, PushSettings
from manager.dispatch.transport.push_transport import PushTransport
from multikueue.kube.rest import credentials

pytestmark = pytest.mark.anyio

Object = dict[str, Any]


def kubeconfig(token: str, *, server: str = "https://127.0.0.1:6443") -> Object:
    """One that has a context and a cluster beside, of which not even the names are there."""
    return {
        "current-context": "c",
        "contexts": [{}, {"context": None}, {"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{}, {"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }


def serve(hosts: PushHosts, document: Object, *, digest: str) -> None:
    hosts.serve("w1", JudgedKubeconfig(kubeconfig=document, digest=digest), credentials.from_dict(document))


async def test_a_kubeconfig_with_nameless_entries_is_renewed_like_any_other() -> None:
    hosts = PushHosts(
        cast(ManagerContext, SimpleNamespace(random=Random(1))),
        cast(PushTransport, None),
        settings=PushSettings(),
        changed=lambda name: None,
    )
    serve(hosts, kubeconfig("one"), digest="1")
    serve(hosts, kubeconfig("two"), digest="2")
    serve(hosts, kubeconfig("two", server="https://127.0.0.2:6443"), digest="3")
    assert hosts.has("w1")
