# SPDX-License-Identifier: Apache-2.0
"""The behaviour of a pod, from its annotations and its spec.

- `multikueue.io/run-for`: how long the containers run (`90`, `2s`, `1m30s`, `500ms`, `forever`); by default as long as
  their programs (see `programs`), and for unknown programs 2 s for the pods of a Job, else forever
- `multikueue.io/exit-code`: their exit code; by default 0
- `multikueue.io/fail-once: "true"`: the first attempt ends with exit-code (1 if that is 0), later ones with 0
- `multikueue.io/ready-after`: when they become ready; by default at once
- `multikueue.io/never-ready: "true"`: they do not become ready
- `multikueue.io/pull-fails: "true"`: their images cannot be pulled, so they never start
- `multikueue.io/stop-after`: how long they take to stop, at most the grace period; by default as long as their programs
  take, and no time for unknown programs

With an invalid value the pod fails, and its status has the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from devcluster.kubelet.containers.programs import FOREVER, programs_of
from multikueue.api import constants
from multikueue.api.objects import JsonObject, controller_of
from multikueue.core.duration import parse_unsigned_duration
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned
from multikueue.core.printable import excerpt

PULL_FAILS_ANNOTATION: Final = "multikueue.io/pull-fails"
STOP_AFTER_ANNOTATION: Final = "multikueue.io/stop-after"
COMPLETION_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
EXIT_TERMINATED: Final = 143  # 128 + SIGTERM
_JOB_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The behaviour of a pod; times in seconds."""

    run_for: float
    exit_code: int = 0
    fail_once: bool = False
    pull_fails: bool = False
    ready_after: float = 0.0
    stop_after: float = 0.0
    stop_code: int = EXIT_TERMINATED
    """The exit code after SIGTERM."""
    restart_policy: str = "Always"

    def exit_code_of(self, *, failed_before: bool) -> int:
        """The exit code, given whether an earlier attempt at the same work failed."""
        if not self.fail_once:
            return self.exit_code
        return 0 if failed_before else self.exit_code or 1


def behaviour_of(pod: JsonObject) -> Behaviour:
    """Parse the annotations. Raises `BadInput` with the annotation and its valid values."""
    annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    owner = controller_of(pod)
    usual = _JOB_SECONDS if owner is not None and owner["kind"] == "Job" else FOREVER
    stop_after, stop_code = 0.0, EXIT_TERMINATED
    programs = programs_of(pod)
    if programs is not None:
        # All containers of a pod end together: with the longest one, and with a failure if any fails.
        usual = max(program.run_for for program in programs)
        stop_after = max(program.stop_after for program in programs)
        stop_code = max(program.stop_code for program in programs)
    never_ready = _flag(annotations, constants.NEVER_READY_ANNOTATION)
    return Behaviour(
        run_for=_seconds(annotations, constants.RUN_FOR_ANNOTATION, usual),
        exit_code=_exit_code(annotations),
        fail_once=_flag(annotations, constants.FAIL_ONCE_ANNOTATION),
        pull_fails=_flag(annotations, PULL_FAILS_ANNOTATION),
        ready_after=FOREVER if never_ready else _seconds(annotations, constants.READY_AFTER_ANNOTATION, 0.0),
        stop_after=_seconds(annotations, STOP_AFTER_ANNOTATION, stop_after),
        stop_code=stop_code,
        restart_policy=pod["spec"].get("restartPolicy", "Always"),
    )


def work_of(pod: JsonObject) -> str:
    """A key that all attempts at the same work share: the controller and the completion index."""
    owner = controller_of(pod)
    index = (pod["metadata"].get("annotations") or {}).get(COMPLETION_INDEX_ANNOTATION, "")
    return f"{owner['uid']}/{index}" if owner is not None else str(pod["metadata"]["uid"])


def parse_seconds(text: str) -> float:
    """Seconds of `90`, `1.5`, `2s`, `1m30s`, `500ms` or `forever`. Raises `ValueError`."""
    text = text.strip()
    if text == "forever":
        return FOREVER
    if text[-1:].isalpha():
        return parse_unsigned_duration(text).total_seconds()
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
        raise BadInput(f"annotation {name}: {text!r} is not a duration such as 2s, 1m30s or forever") from error


def _flag(annotations: Mapping[str, str], name: str) -> bool:
    text = annotations.get(name, "false")
    if text not in ("true", "false"):
        raise BadInput(f"annotation {name}: {text!r} is neither true nor false")
    return text == "true"


def _exit_code(annotations: Mapping[str, str]) -> int:
    text = annotations.get(constants.EXIT_CODE_ANNOTATION, "0")
    try:
        return parse_unsigned(text, field=constants.EXIT_CODE_ANNOTATION, maximum=255)
    except BadInput as error:
        raise BadInput(
            f"annotation {constants.EXIT_CODE_ANNOTATION}: {excerpt(text)} is not an exit code from 0 to 255"
        ) from error
