# SPDX-License-Identifier: Apache-2.0
"""The state of a running federation, in its folder, for other processes.

Owns the file `state.json`, which the supervisor replaces atomically, and the lock that the supervisor holds while it
runs: readers do not have to check a pid. Imports no slow modules.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

import orjson

from multikueue.core.errors import BadInput

_STATE: Final = "state.json"
_LOCK: Final = "lock"


class FederationPhase(StrEnum):
    """The phase of a federation."""

    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    DOWN = "down"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """One cluster."""

    name: str
    role: str
    server: str
    kubeconfig: str
    context: str = ""
    """The context of the cluster in the federation's merged kubeconfig, or in its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentState:
    """One component."""

    owner: str
    name: str
    pid: int | None
    running: bool
    log: str
    restarts: int = 0
    """How often it was restarted after a crash."""
    health: str = ""
    """The URL of its health endpoint; empty if there is none."""
    problem: str = ""
    """The problem of a running component; readers set it, the supervisor does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationState:
    """The state of one federation."""

    name: str
    provider: str
    phase: FederationPhase
    supervisor: int
    step: str = ""
    error: str = ""
    kubeconfig: str = ""
    """The merged kubeconfig of all clusters; empty if there is none."""
    metrics: str = ""
    """The metrics URL of the hub's manager."""
    clusters: Sequence[ClusterState] = field(default_factory=tuple)
    components: Sequence[ComponentState] = field(default_factory=tuple)

    def cluster(self, name: str) -> ClusterState:
        """The cluster of that name. Raises `BadInput`, which lists the valid names."""
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        names = ", ".join(cluster.name for cluster in self.clusters) or "none yet"
        raise BadInput(f"federation {self.name} has no cluster {name!r}, only {names}")

    def write(self, folder: Path) -> None:
        """Replace the folder's state file."""
        unfinished = folder / f".{_STATE}.{os.getpid()}"
        unfinished.write_bytes(orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2))
        unfinished.replace(folder / _STATE)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The state in a folder; None if there is none."""
        try:
            values = orjson.loads((folder / _STATE).read_bytes())
        except FileNotFoundError:
            return None
        values = _known(cls, values)
        values["phase"] = FederationPhase(values["phase"])
        values["clusters"] = tuple(ClusterState(**_known(ClusterState, entry)) for entry in values["clusters"])
        values["components"] = tuple(ComponentState(**_known(ComponentState, entry)) for entry in values["components"])
        return cls(**values)


def _known(model: type, values: dict[str, Any]) -> dict[str, Any]:
    """Without fields that only a later version writes."""
    names = {each.name for each in fields(model)}
    return {key: value for key, value in values.items() if key in names}


@contextmanager
def supervising(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises `BadInput` if another supervisor holds it."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"{folder}: another supervisor runs this federation") from error
        yield
    finally:
        os.close(descriptor)


def is_supervised(folder: Path) -> bool:
    """Whether a supervisor runs."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
