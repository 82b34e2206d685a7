# SPDX-License-Identifier: Apache-2.0
"""What a running federation tells about itself in its folder, for processes that did not start it.

Owns the file `state.json`, which its supervisor replaces atomically, and the lock that is held while a supervisor
lives: a reader never has to guess from a pid whether a federation runs. Imports nothing heavy.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import orjson

from multikueue.core.errors import BadInput

_STATE: Final = "state.json"
_LOCK: Final = "lock"


class Phase(StrEnum):
    """How far a federation is."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentState:
    """One component."""

    owner: str
    name: str
    pid: int | None
    running: bool
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything a federation tells."""

    name: str
    provider: str
    phase: Phase
    supervisor: int
    step: str = ""
    error: str = ""
    clusters: Sequence[ClusterState] = field(default_factory=tuple)
    components: Sequence[ComponentState] = field(default_factory=tuple)

    def cluster(self, name: str) -> ClusterState:
        """The cluster of that name. Raises `BadInput` that lists the names there are."""
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
        """The state in a folder; None when there is none."""
        try:
            values = orjson.loads((folder / _STATE).read_bytes())
        except FileNotFoundError:
            return None
        values["phase"] = Phase(values["phase"])
        values["clusters"] = tuple(ClusterState(**entry) for entry in values["clusters"])
        values["components"] = tuple(ComponentState(**entry) for entry in values["components"])
        return cls(**values)


@contextmanager
def supervising(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises `BadInput` when another supervisor holds it."""
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
    """Whether a supervisor lives."""
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
