# SPDX-License-Identifier: Apache-2.0
"""The identity of the agent on the hub at its start: the stored one, or a new one by a bootstrap token.

An identity whose certificate has expired is requested again like the first one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from multikueue.api.meta import JsonObject
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.kube.errors import Forbidden, Unauthorized
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.credentials import ClusterConfig
from worker_agent.hub.enrolment import cluster_uid, enrol
from worker_agent.hub.identity import FileStore, IdentityStore, SecretStore, certificate_life, is_complete
from worker_agent.options import AgentOptions
from worker_agent.reconnect import retry_every

T = TypeVar("T")

TOKEN_USER_PREFIX: Final = "bootstrap:"
"""The prefix of the user name in a bootstrap kubeconfig; the id of the token follows."""
_RETRY_SECONDS: Final = 5.0


def identity_store(given: AgentOptions, worker: KubeClient) -> IdentityStore:
    """The store of the identity: a file or a Secret."""
    if given.hub_secret is not None:
        namespace, _, name = given.hub_secret.partition("/")
        return SecretStore(worker, namespace=namespace, name=name)
    assert given.hub_kubeconfig is not None, "one of the two is required"
    return FileStore(Path(given.hub_kubeconfig))


async def hub_config(given: AgentOptions, worker: KubeClient, store: IdentityStore, *, clock: Clock) -> ClusterConfig:
    """The config of the hub with the identity of this agent. Raises `BadInput`, and `Refused` if the hub denies it."""
    kubeconfig = await _request(store.load, what="identity")
    if not is_complete(kubeconfig) or (given.bootstrap_kubeconfig and _is_expired(kubeconfig, clock)):
        if given.bootstrap_kubeconfig is None:
            raise BadInput(
                f"there is no identity on the hub for {given.cluster} yet: run `mkctl cluster register {given.cluster}`"
                " there and start this agent with --bootstrap-kubeconfig"
            )
        path = Path(given.bootstrap_kubeconfig)
        bootstrap = await FileStore(path).load()
        if bootstrap is None:
            raise BadInput(f"--bootstrap-kubeconfig {path}: no such file")
        kubeconfig = await _request(
            lambda: _enrol(given, bootstrap, worker, store, clock),
            what="certificate",
        )
    if given.hub_kubeconfig is not None:
        return credentials.load(given.hub_kubeconfig, context=given.hub_context, clock=clock)
    assert kubeconfig is not None, "an enrolment stores a complete kubeconfig"
    return credentials.from_dict(
        kubeconfig, source=f"Secret {given.hub_secret}", context=given.hub_context, clock=clock
    )


async def _enrol(
    given: AgentOptions, bootstrap: JsonObject, worker: KubeClient, store: IdentityStore, clock: Clock
) -> JsonObject:
    return await enrol(
        bootstrap,
        cluster=given.cluster,
        token_id=_token_id(bootstrap, given.bootstrap_kubeconfig or ""),
        uid=await cluster_uid(worker),
        store=store,
        clock=clock,
        seconds=given.renewal.seconds,
    )


async def _request(call: Callable[[], Awaitable[T]], *, what: str) -> T:
    """The result, retried while a server is unreachable. Raises `BadInput` if the credentials are refused."""

    async def attempt() -> T:
        try:
            return await call()
        except (Unauthorized, Forbidden) as error:
            raise BadInput(f"cannot get the {what}: {error}; was the token redeemed or has it expired?") from error

    return await retry_every(_RETRY_SECONDS, attempt, what=what)


def _token_id(bootstrap: JsonObject, path: str) -> str:
    for entry in bootstrap.get("users") or ():
        name = str(entry.get("name", ""))
        if name.startswith(TOKEN_USER_PREFIX):
            return name.removeprefix(TOKEN_USER_PREFIX)
    raise BadInput(f"{path}: not a kubeconfig of `mkctl cluster register`: no user {TOKEN_USER_PREFIX}ID")


def _is_expired(kubeconfig: JsonObject | None, clock: Clock) -> bool:
    life = None if kubeconfig is None else certificate_life(kubeconfig)
    return life is not None and clock.now() >= life.ends
