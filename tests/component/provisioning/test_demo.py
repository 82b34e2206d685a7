# SPDX-License-Identifier: Apache-2.0
"""`mkctl demo --example provisioning` applies deploy/examples/provisioning/across-clusters and shows what happens.

`--example provisioning-one-cluster` does so with deploy/examples/provisioning itself.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.conformance

ACROSS = (
    r"worker-(?P<first>\d): capacity is requested",
    r"worker-(?P=first): Capacity is expected at",
    r"worker-(?P=first): 3 new nodes are there",
    r"hub: worker-(?P=first) has the capacity, the Job is sent there",
    r"hub: 3 pods of the Job run on worker-(?P=first)",
    r"demo: the autoscaler of worker-(?P=first) takes the capacity away",
    r"hub: the Job is stopped on worker-(?P=first) and needs capacity again",
    r"worker-(?P<second>\d): 3 new nodes are there",
    r"hub: worker-(?P=second) has the capacity, the Job is sent there",
    r"hub: the Job is complete",
    r"The Job ran on worker-(?P=first) and then worker-(?P=second); nothing is left.",
)

ONE_CLUSTER = (
    r"the node of the cluster has 2 cpu, the Job has 3 pods of 6 cpu",
    r"cluster: capacity is requested",
    r"cluster: Capacity is expected at",
    r"cluster: 3 new nodes are there",
    r"manager: 3 pods of the Job run",
    r"demo: the autoscaler takes the capacity away",
    r"manager: its Workload is deactivated and is not tried again by itself",
    r"demo: the autoscaler has capacity again, and the user sets spec.active of the Workload",
    r"cluster: capacity is requested",
    r"cluster: 3 new nodes are there",
    r"manager: 3 pods of the Job run",
    r"manager: the Job is complete",
    r"The Job ran on capacity that was provisioned for it, twice; nothing is left.",
)


def demo(example: str, folder: Path) -> str:
    """What the demo prints; it must end well."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("mkctl")), "demo", "--example", example],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    return done.stdout


def test_the_demo_provisions_on_one_worker_and_after_the_revocation_on_the_other(tmp_path: Path) -> None:
    shown = demo("provisioning", tmp_path)
    assert re.search(".*?".join(ACROSS), shown, re.DOTALL), shown


def test_the_demo_on_one_cluster_provisions_again_after_the_revocation_when_a_user_asks_for_it(tmp_path: Path) -> None:
    shown = demo("provisioning-one-cluster", tmp_path)
    assert re.search(".*?".join(ONE_CLUSTER), shown, re.DOTALL), shown
