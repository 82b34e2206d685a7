#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Kubernetes' own conformance suite against an embedded cluster.

    hack/kubernetes_suite.py [--focus REGEX] [--output FILE]

Builds `e2e.test` from the Go module of Kubernetes (six minutes the first time), starts one embedded cluster, and runs
the tests that `tests/conformance/kubernetes_suite.yaml` chooses. With KUBECONFIG set it uses that cluster instead.
Prints a table of the tests by group; the exit code is 1 if one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from devcluster.providers.binaries import build, release

ROOT = Path(__file__).resolve().parent.parent
CHOICE = ROOT / "tests" / "conformance" / "kubernetes_suite.yaml"
MODULE = "k8s.io/kubernetes"
_CONFORMANCE = "[Conformance]"
_GROUP = re.compile(r"^\[(sig-[a-z-]+)\]")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which tests run."""

    run: tuple[re.Pattern[str], ...]
    left_out: tuple[tuple[re.Pattern[str], str], ...]

    def reason(self, title: str) -> str | None:
        """Why a test is left out; None if it runs."""
        for pattern, reason in self.left_out:
            if pattern.search(title):
                return reason
        return None if any(pattern.search(title) for pattern in self.run) else "needs containers, volumes or a network"


def read_choice(path: Path = CHOICE) -> Choice:
    """The choice in a file."""
    found = yaml.safe_load(path.read_text())
    left_out = tuple((re.compile(entry["tests"]), entry["reason"]) for entry in found["left_out"])
    return Choice(tuple(re.compile(text) for text in found["run"]), left_out)


def main() -> int:
    """Build, start a cluster if there is none, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--focus", default="", help="only tests whose title matches")
    parser.add_argument("--output", type=Path, help="write the suite's own output to this file")
    chosen = parser.parse_args()
    program = built()
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig:
        suite = [str(ROOT / "hack" / "suite.sh"), "--federation", "kubernetes-suite", "--workers", "0", "--"]
        return subprocess.run([*suite, sys.executable, *sys.argv], check=False).returncode
    titles = sorted(title for title in listed(program, kubeconfig) if re.search(chosen.focus, title))
    choice = read_choice()
    running = [title for title in titles if choice.reason(title) is None]
    states = run(program, kubeconfig, running, output=chosen.output)
    return print_table(titles, states, choice)


def built() -> Path:
    """The program of the suite, which is built if it is not there."""
    program = release.cache_folder().parent / f"e2e-{release.KUBERNETES_VERSION}.test"
    if program.exists():
        return program
    go = build.find_go()
    version = release.KUBERNETES_VERSION
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    found = subprocess.run(
        [go, "mod", "download", "-json", f"{MODULE}@{version}"], env=environment, capture_output=True, check=True
    )
    source = Path(json.loads(found.stdout)["Dir"])
    # The staged modules have a version of their own: v1.36.3 is published as v0.36.3.
    staged = re.findall(r"^\t(k8s\.io/[a-z-]+) => \./staging", (source / "go.mod").read_text(), re.MULTILINE)
    replaced = "\n".join(f"\t{name} => {name} {version.replace('v1.', 'v0.')}" for name in staged)
    with tempfile.TemporaryDirectory() as folder:
        text = f"module suite\n\ngo 1.26.0\n\nrequire {MODULE} {version}\n\nreplace (\n{replaced}\n)\n"
        (Path(folder) / "go.mod").write_text(text)
        (Path(folder) / "go.sum").write_bytes((source / "go.sum").read_bytes())
        command = [go, "test", "-c", "-o", str(program), f"{MODULE}/test/e2e"]
        subprocess.run(command, cwd=folder, env=environment, check=True)
    return program


def listed(program: Path, kubeconfig: str) -> Iterator[str]:
    """The titles of all conformance tests."""
    for report in _reports(program, kubeconfig, ["--ginkgo.dry-run", r"--ginkgo.focus=\[Conformance\]"]):
        title = _title(report)
        if _CONFORMANCE in title and report["State"] != "skipped":
            yield title


def run(program: Path, kubeconfig: str, titles: list[str], *, output: Path | None) -> dict[str, str]:
    """The state of each test after it ran."""
    focus = "|".join(re.escape(title).replace("\\ ", " ") for title in titles)  # Go has no escaped space
    reports = _reports(program, kubeconfig, [f"--ginkgo.focus={focus}", "--ginkgo.timeout=2h"], output=output)
    wanted = set(titles)
    return {_title(report): report["State"] for report in reports if _title(report) in wanted}


def _reports(
    program: Path, kubeconfig: str, arguments: list[str], *, output: Path | None = None
) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            str(program),
            "--provider=skeleton",
            f"--kubeconfig={kubeconfig}",
            "--allowed-not-ready-nodes=-1",
            "--minStartupPods=0",
            "--disable-log-dump=true",
            "--ginkgo.no-color",
            f"--ginkgo.json-report={report}",
            *arguments,
        ]
        with output.open("w") if output is not None else tempfile.TemporaryFile("w") as log:
            subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, check=False)
        found: list[dict[str, Any]] = json.loads(report.read_text())[0]["SpecReports"]
        return found


def _title(report: dict[str, Any]) -> str:
    return " ".join([*(report["ContainerHierarchyTexts"] or ()), report["LeafNodeText"]])


def print_table(titles: list[str], states: dict[str, str], choice: Choice) -> int:
    """Print what passed by group, what failed, and why others were left out. Returns the exit code."""
    groups = sorted({_group(title) for title in titles})
    print("| group | tests | passed | failed | left out |\n|---|---|---|---|---|")
    for group in groups:
        own = [title for title in titles if _group(title) == group]
        counted = Counter(states.get(title, "left out") for title in own)
        failed = len(own) - counted["passed"] - counted["left out"]
        print(f"| {group} | {len(own)} | {counted['passed']} | {failed} | {counted['left out']} |")
    for reason, number in Counter(filter(None, map(choice.reason, titles))).most_common():
        print(f"left out, {number}: {reason}")
    failures = [title for title, state in states.items() if state != "passed"]
    for title in failures:
        print(f"{states[title]}: {title}")
    return 1 if failures else 0


def _group(title: str) -> str:
    found = _GROUP.match(title)
    return found[1] if found is not None else "other"


if __name__ == "__main__":
    sys.exit(main())
