# SPDX-License-Identifier: Apache-2.0
"""What a pod is to do, read from its annotations and its spec.

- `multikueue.io/run-for`: how long the containers run (`90`, `2s`, `1m30s`, `500ms`, `forever`); without it 2 s for the
  pods of a Job, else forever
- `multikueue.io/exit-code`: how they end; without it 0
- `multikueue.io/fail-once: "true"`: the first try ends with exit-code (1 if that is 0), later ones with 0
- `multikueue.io/ready-after`: when they become ready; without it at once
- `multikueue.io/never-ready: "true"`: never
- `multikueue.io/stop-after`: how long they take to end when asked to, at most the grace period; without it no time

A value that makes no sense is not guessed at: the pod fails with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from multikueue.api import constants
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput

STOP_AFTER_ANNOTATION: Final = "multikueue.io/stop-after"
COMPLETION_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
FOREVER: Final = math.inf
_JOB_SECONDS: Final = 2.0
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What a pod is to do; times in seconds."""

    run_for: float
    exit_code: int = 0
    fail_once: bool = False
    ready_after: float = 0.0
    stop_after: float = 0.0
    restart_policy: str = "Always"

    def exit_code_of(self, *, failed_before: bool) -> int:
        """How the containers end, given whether a try of the same work failed before."""
        if not self.fail_once:
            return self.exit_code
        return 0 if failed_before else self.exit_code or 1


def behaviour_of(pod: JsonObject) -> Behaviour:
    """Read it. Raises `BadInput` that names the annotation and what it may be."""
    annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    owner = controller_of(pod)
    usual = _JOB_SECONDS if owner is not None and owner["kind"] == "Job" else FOREVER
    never_ready = _flag(annotations, constants.NEVER_READY_ANNOTATION)
    return Behaviour(
        run_for=_seconds(annotations, constants.RUN_FOR_ANNOTATION, usual),
        exit_code=_exit_code(annotations),
        fail_once=_flag(annotations, constants.FAIL_ONCE_ANNOTATION),
        ready_after=FOREVER if never_ready else _seconds(annotations, constants.READY_AFTER_ANNOTATION, 0.0),
        stop_after=_seconds(annotations, STOP_AFTER_ANNOTATION, 0.0),
        restart_policy=pod["spec"].get("restartPolicy", "Always"),
    )


def controller_of(pod: JsonObject) -> JsonObject | None:
    """The owner reference of the pod's controller."""
    owners: list[JsonObject] = pod["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def work_of(pod: JsonObject) -> str:
    """What is the same for all tries of one piece of work: the controller and the completion index."""
    owner = controller_of(pod)
    index = (pod["metadata"].get("annotations") or {}).get(COMPLETION_INDEX_ANNOTATION, "")
    return f"{owner['uid']}/{index}" if owner is not None else str(pod["metadata"]["uid"])


def parse_seconds(text: str) -> float:
    """Seconds of `90`, `1.5`, `2s`, `1m30s`, `500ms` or `forever`. Raises `ValueError`."""
    text = text.strip()
    if text == "forever":
        return FOREVER
    if _PART.fullmatch(text) or (text and _PART.sub("", text) == ""):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


def _seconds(annotations: Mapping[str, str], name: str, usual: float) -> float:
    text = annotations.get(name)
    if text is None:
        return usual
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise BadInput(f"annotation {name}: {text!r} is no duration such as 2s, 1m30s or forever") from error


def _flag(annotations: Mapping[str, str], name: str) -> bool:
    text = annotations.get(name, "false")
    if text not in ("true", "false"):
        raise BadInput(f"annotation {name}: {text!r} is neither true nor false")
    return text == "true"


def _exit_code(annotations: Mapping[str, str]) -> int:
    text = annotations.get(constants.EXIT_CODE_ANNOTATION, "0")
    if not text.isdecimal() or int(text) > 255:
        raise BadInput(f"annotation {constants.EXIT_CODE_ANNOTATION}: {text!r} is no exit code from 0 to 255")
    return int(text)
