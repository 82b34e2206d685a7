# SPDX-License-Identifier: Apache-2.0
"""Who the agent is on the hub when it starts: as it was, or by a bootstrap token if it was nobody yet.

Owns the choice of the identity's home and when a new identity is asked for. An identity that was renewed too late, as
after a month in a drawer, is asked for anew like the first one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import anyio

from multikueue.api.meta import JsonObject
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.kube import credentials
from multikueue.kube.client import KubeClient
from multikueue.kube.credentials import ClusterConfig
from multikueue.kube.errors import Forbidden, KubeError, Unauthorized
from worker_agent.enrolment import cluster_uid, enrol
from worker_agent.identity import FileStore, SecretStore, Store, certificate_life, is_complete
from worker_agent.options import Options

T = TypeVar("T")

_log = logging.getLogger(__name__)

TOKEN_USER_PREFIX: Final = "bootstrap:"
"""Of the user's name in a bootstrap kubeconfig; what follows is the id of the token."""
_AGAIN_SECONDS: Final = 5.0


def home_of(given: Options, worker: KubeClient) -> Store:
    """Where the identity is kept."""
    if given.hub_secret is not None:
        namespace, _, name = given.hub_secret.partition("/")
        return SecretStore(worker, namespace=namespace, name=name)
    assert given.hub_kubeconfig is not None, "one of the two is required"
    return FileStore(Path(given.hub_kubeconfig))


async def hub_of(given: Options, worker: KubeClient, store: Store, *, clock: Clock) -> ClusterConfig:
    """The hub as this agent. Raises `BadInput`, and `Refused` when the hub will not have it."""
    kubeconfig = await _ask(lambda: store.load(), what="the identity")
    if not is_complete(kubeconfig) or (given.bootstrap_kubeconfig and _is_over(kubeconfig, clock)):
        if given.bootstrap_kubeconfig is None:
            raise BadInput(
                f"there is no identity on the hub for {given.cluster} yet: run `mkctl cluster register {given.cluster}`"
                " there and start this agent with --bootstrap-kubeconfig"
            )
        path = Path(given.bootstrap_kubeconfig)
        bootstrap = await FileStore(path).load()
        if bootstrap is None:
            raise BadInput(f"--bootstrap-kubeconfig {path}: no such file")
        kubeconfig = await _ask(
            lambda: _enrol(given, bootstrap, worker, store, clock),
            what="a certificate",
        )
    if given.hub_kubeconfig is not None:
        return credentials.load(given.hub_kubeconfig, context=given.hub_context, clock=clock)
    assert kubeconfig is not None, "complete by now"
    return credentials.from_dict(
        kubeconfig, source=f"Secret {given.hub_secret}", context=given.hub_context, clock=clock
    )


async def _enrol(given: Options, bootstrap: JsonObject, worker: KubeClient, store: Store, clock: Clock) -> JsonObject:
    return await enrol(
        bootstrap,
        cluster=given.cluster,
        token_id=_token_id(bootstrap, given.bootstrap_kubeconfig or ""),
        uid=await cluster_uid(worker),
        store=store,
        clock=clock,
        seconds=given.renewal.seconds,
    )


async def _ask(call: Callable[[], Awaitable[T]], *, what: str) -> T:
    """The answer, however long one of the two servers is away; credentials that are refused are refused."""
    told = ""
    while True:
        try:
            return await call()
        except (Unauthorized, Forbidden) as error:
            raise BadInput(f"{what} cannot be had: {error}; was the token redeemed or has it expired?") from error
        except KubeError as error:
            if str(error) != told:
                _log.warning("%s cannot be had yet: %s", what, error)
                told = str(error)
        await anyio.sleep(_AGAIN_SECONDS)


def _token_id(bootstrap: JsonObject, path: str) -> str:
    for entry in bootstrap.get("users") or ():
        name = str(entry.get("name", ""))
        if name.startswith(TOKEN_USER_PREFIX):
            return name.removeprefix(TOKEN_USER_PREFIX)
    raise BadInput(f"{path}: not a kubeconfig that `mkctl cluster register` made: no user {TOKEN_USER_PREFIX}ID")


def _is_over(kubeconfig: JsonObject | None, clock: Clock) -> bool:
    life = None if kubeconfig is None else certificate_life(kubeconfig)
    return life is not None and clock.now() >= life.ends
