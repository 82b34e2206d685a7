# SPDX-License-Identifier: Apache-2.0
"""`batch/v1` Job is one kind of many: outside its integration it is only named where a kind has to be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
MENTION: Final = re.compile(r"batch_job|batch/v1", re.IGNORECASE)
FOLDERS: Final = ("multikueue", "manager", "worker_agent", "deploy", "hack", "crds")
OWN: Final = "multikueue/jobs/"
"""The integration of the kind, and the registry that lists it."""
REASONS: Final = {
    "deploy/examples/devices/jobs.yaml": "an example is of some kind",
    "deploy/examples/provisioning/20-job.yaml": "an example is of some kind",
    "deploy/examples/two-teams-job.yaml": "an example is of some kind",
    "deploy/examples/provisioning/across-clusters/20-job.yaml": "an example is of some kind",
    "hack/job_modules.py": "counts the modules that one Job passes",
    "multikueue/api/configuration.py": "the default list of frameworks",
    "multikueue/api/constants.py": "the name of the framework and of the label of its pods",
    "multikueue/api/defaulting.py": "the default paths of the fields are those of a Job",
    "multikueue/api/job.py": "the wire type of the kind",
    "multikueue/api/validation/job.py": "the rules of the kind",
    "multikueue/cli/cluster/recovering.py": "the one kind whose rights are in the role for recovery",
    "multikueue/cli/cluster/agent_kinds.py": "the one kind whose rights every agent's manifest has",
    "multikueue/cli/local/demo.py": "the default list of kinds of the demo",
    "multikueue/cli/local/demo_jobs.py": "the counts of pods that only its status has",
    "multikueue/cli/local/demo_kinds.py": "the list of frameworks of the demo",
    "multikueue/cli/local/demo_run.py": "the default list of kinds, and the one that every cluster runs by itself",
    "multikueue/cli/logs/command.py": "the kind of a job that is named without one",
    "multikueue/kube/cache/packing.py": "text to compress against: a likely spelling, not a rule",
    "worker_agent/app.py": "the default list of kinds",
    "worker_agent/kinds.py": "the default list of kinds, which is served without reading declarations",
    "worker_agent/local/capacity.py": "the default list of labels by which pods name their jobs",
    "worker_agent/options.py": "the default list of kinds",
}
"""Why each file names it; no behaviour that other kinds need depends on it."""


def mentions() -> set[str]:
    found = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in (".py", ".yaml", ".yml") or name.startswith(OWN):
                continue
            if MENTION.search(path.read_text(encoding="utf-8")):
                found.add(name)
    return found


def test_no_other_file_names_the_kind() -> None:
    assert mentions() == REASONS.keys()


@pytest.mark.parametrize("folder", ["manager", "multikueue/dispatch", "multikueue/engine", "multikueue/simulation"])
def test_what_queues_and_dispatches_does_not_know_it(folder: str) -> None:
    assert [name for name in mentions() if name.startswith(f"{folder}/")] == []
