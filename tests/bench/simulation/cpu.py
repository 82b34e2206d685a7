# SPDX-License-Identifier: Apache-2.0
"""What `mkctl simulate` costs as a process, in CPU seconds.

Owns four inputs: a small one, the same as a table and with a Configuration, and 5,000 workloads in 30 queues. The least
of several runs is taken, which other processes of the machine disturb least. Goal: a small input within 0.3 s. A large
part of that are imports: those of all kinds are to take no longer than that of pydantic.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import yaml

from multikueue.api.codec import MODELS
from tests.bench.figure import FigureShape

_ROOT = Path(__file__).parents[3]
_SMALL = _ROOT / "deploy" / "examples" / "borrowing"
_CONFIGURED = _ROOT / "deploy" / "examples" / "fair-sharing-2-1"
_VERSION = "kueue.x-k8s.io/v1beta2"
_CLASSES = ((1, 50), (1, 50), (1, 50), (5, 100), (20, 200))  # processors and priority
_QUEUES, _WORKLOADS = 30, 5_000


def seconds(*arguments: str, runs: int) -> float:
    """CPU seconds, user and system, of the cheapest of several runs."""
    command = [os.fspath(Path(sys.executable).parent / "mkctl"), "simulate", *arguments]
    spent = []
    for _ in range(runs):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = getrusage(RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(min(spent), 3)


_IMPORTS = """
import time
started = time.process_time()
import pydantic
between = time.process_time()
import {modules}
print((time.process_time() - between) / (between - started))
"""


def imports() -> float:
    """The CPU time of importing the models of all kinds beside that of importing pydantic; the least of several."""
    modules = ", ".join(sorted({*MODELS.values(), "multikueue.api.codec"}))
    command = [sys.executable, "-c", _IMPORTS.format(modules=modules)]
    found = [float(subprocess.run(command, capture_output=True, check=True, cwd=_ROOT).stdout) for _ in range(10)]
    return round(min(found), 2)


FIGURES = (
    FigureShape("small_*", "CPU s", 0.3),
    FigureShape("imports_of_all_kinds_beside_pydantic", "x", 1.0),
    FigureShape("*", "CPU s"),
)


def main() -> dict[str, float]:
    """The figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        documents = _many()
        (folder / "many.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
        with (folder / "many.yaml").open("w") as file:
            yaml.dump_all(documents, file, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
        return {
            "imports_of_all_kinds_beside_pydantic": imports(),
            "small_json_cpu_s": seconds("-f", str(_SMALL), "-o", "json", runs=10),
            "small_table_cpu_s": seconds("-f", str(_SMALL), runs=10),
            "small_with_configuration_cpu_s": seconds("-f", str(_CONFIGURED), "-o", "json", runs=10),
            "5000_workloads_from_json_cpu_s": seconds("-f", str(folder / "many.json"), "-o", "json", runs=3),
            "5000_workloads_from_yaml_cpu_s": seconds("-f", str(folder / "many.yaml"), "-o", "json", runs=3),
        }


def _many() -> list[dict[str, Any]]:
    documents = [_object("ResourceFlavor", "rf")]
    for index in range(_QUEUES):
        quota = {"name": "cpu", "nominalQuota": "20", "borrowingLimit": "100"}
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "rf", "resources": [quota]}]}]
        documents.append(
            _object(
                "ClusterQueue",
                f"cq-{index}",
                cohortName=f"cohort-{index % 5}",
                namespaceSelector={},
                preemption={"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
                resourceGroups=groups,
            )
        )
        documents.append(_object("LocalQueue", f"queue-{index}", clusterQueue=f"cq-{index}"))
    for index in range(_WORKLOADS):
        cpu, priority = _CLASSES[index // _QUEUES % len(_CLASSES)]
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}
        pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
        workload = _object(
            "Workload", f"w-{index}", queueName=f"queue-{index % _QUEUES}", priority=priority, podSets=[pod_set]
        )
        documents.append(workload)
    return documents


def _object(kind: str, name: str, **spec: object) -> dict[str, Any]:
    return {"apiVersion": _VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


if __name__ == "__main__":
    json.dump(main(), sys.stdout, indent=2)
