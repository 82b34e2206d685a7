# SPDX-License-Identifier: Apache-2.0
"""Which objects of the hub are sent to a cluster with one workload, and why others are not (ADR 0021).

A function of what the pods name, the rules of the cluster, what its agent may write, and the objects as they are. An
object that was sent before and cannot be read now stays as it was sent, until the job has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from multikueue.dispatch.sending.sending_policy import MAX_SENT_BYTES, SendingRules
from multikueue.dispatch.sending.sent_objects import SentReference
from multikueue.dispatch.worker.dependencies import Dependency, SendableObjects

NOT_FOUND: Final = "there is none on the hub"
NOT_READ: Final = "it could not be read on the hub yet"
_RIGHTS: Final = "docs/operations/sending.md"


@dataclass(frozen=True, slots=True)
class SourceState:
    """One object of the hub; `problem` is why it cannot be sent, then it has neither version nor size."""

    version: str = ""
    size: int = 0
    problem: str = ""


def sent_references(
    names: SendableObjects,
    sources: Mapping[Dependency, SourceState],
    *,
    rules: SendingRules,
    agent_kinds: Collection[str],
    before: Iterable[SentReference] = (),
) -> tuple[SentReference, ...]:
    """The entries of an assignment, in the order of `names`; `before` are those that it has.

    What is optional has no entry if it cannot be sent: nothing waits for it.
    """
    sent = {each.needed: each for each in before if each.version}
    left, found, optional = MAX_SENT_BYTES, [], frozenset(names.optional)
    for name in names.names:
        if not rules.problem and name.kind not in rules.kinds:
            continue
        source = sources.get(name, SourceState(problem=NOT_READ))
        problem = rules.problem or _of_agent(name.kind, agent_kinds) or source.problem or _too_large(source, left)
        if not problem:
            left -= source.size
            found.append(SentReference(name, source.version))
        elif name in sent and not rules.problem:
            found.append(sent[name])
        elif name not in optional:
            found.append(SentReference(name, problem=problem))
    return tuple(found)


def may_not_read(kind: str) -> str:
    """The problem of a manager that was not given the right to read objects of the kind."""
    return f"the manager may not read {kind}s in this namespace of the hub, see {_RIGHTS}"


def may_not_store(kind: str) -> str:
    """The problem of a manager that was not given the right to write objects of the kind in mailboxes."""
    return f"the manager may not write {kind}s in the mailbox of the cluster, see {_RIGHTS}"


def _of_agent(kind: str, agent_kinds: Collection[str]) -> str:
    return "" if kind in agent_kinds else f"the agent of the cluster may not write {kind}s there, see {_RIGHTS}"


def _too_large(source: SourceState, left: int) -> str:
    if source.size <= left:
        return ""
    return f"it has {source.size} bytes, and at most {MAX_SENT_BYTES} are sent with one job"
