#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs kubectl's own test suite (Kubernetes' `test/cmd`) against an embedded cluster with its controllers.

    hack/kubectl_suite.py [--output FILE] [TEST...]

Fetches the Go module of Kubernetes, builds `kubectl-convert`, and starts one embedded cluster without a scheduler, as
the suite has one. TEST is the name of a test without `run_` and `_tests`, for example `kubectl_apply`. Prints what
failed, and what is left out and why; the exit code is 1 if a test failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import anyio

from devcluster.apiserver.http.listener import Listener, Serving
from devcluster.apiserver.http.requests import MASTERS, User
from devcluster.apiserver.server import ApiServer
from devcluster.controllers.app import ControllerOptions, Controllers
from devcluster.pki import Authority, new_key
from devcluster.ports import LOOPBACK, PortRegistry
from devcluster.providers.binaries import build, release
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient

MODULE: Final = "k8s.io/kubernetes"
TOKEN: Final = "admin-token"
"""The token that the tests use."""
FOLDERS: Final = ("api", "cluster", "cmd", "docs", "hack", "pkg", "plugin", "staging", "test", "third_party")
_SECONDS: Final = 3600.0
LEFT_OUT: Final = {
    "swagger": "it looks for sentences of Kubernetes' documentation in /openapi/v2",
    "authorization": "it needs the authorization mode AlwaysAllow",
    "multi_resources": "it reads a manifest from the internet",
    "nodes": "it needs the conditions of a node that no kubelet reports, which no controller here writes",
    "exec_credentials": "it needs the names of certificate authorities in the TLS handshake, which Python cannot send",
}
"""The tests that are not run, and why."""
SETUP: Final = """
set -o nounset -o pipefail
cd "$KUBE_ROOT"
source hack/lib/util.sh; source hack/lib/logging.sh; source hack/lib/test.sh
kube::etcd::start() { :; }
kube::etcd::cleanup() { :; }
kube::util::find-binary() { echo "$THIS_PLATFORM_BIN/$1"; }
make() { :; }
set -o errexit
source test/cmd/legacy-script.sh
setup
export SUPPORTED_RESOURCES=("*")
kubectl create clusterrolebinding everyone --clusterrole=cluster-admin --group=system:authenticated
kubectl create -f - <<NODE
{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "127.0.0.1", "annotations": {"save-managers": "true"}},
 "status": {"capacity": {"memory": "1Gi"}}}
NODE
runTests
"""


def main() -> int:
    """Prepare, run, and print what failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, help="write the suite's own output to this file")
    parser.add_argument("tests", nargs="*")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs, source = folder / "bin", folder / "source"
        fetch(source)
        build_programs(programs)
        log = anyio.run(run, folder, chosen.tests)
    if chosen.output is not None:
        chosen.output.write_text(log)
    return report(log)


def fetch(target: Path) -> None:
    """Copy the parts of the module that the tests read."""
    go, version = build.find_go(), release.KUBERNETES_VERSION
    found = subprocess.run(
        [go, "mod", "download", "-json", f"{MODULE}@{version}"],
        env={**os.environ, "GOFLAGS": "-mod=mod"},
        capture_output=True,
        check=True,
    )
    source = Path(json.loads(found.stdout)["Dir"])
    for name in FOLDERS:
        shutil.copytree(source / name, target / name, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(target):
        os.chmod(folder, 0o755)
    for plugin in (target / "test" / "fixtures" / "pkg" / "kubectl" / "plugins").rglob("*"):
        plugin.chmod(0o755)  # a module has no executable files
    for file in ("test/cmd/apply.sh", "hack/testdata/service-revision2.yaml"):
        path = target / file
        path.write_text(path.read_text().replace("10.0.0.", "10.96.0."))  # the range of Services here
    script = target / "test" / "cmd" / "legacy-script.sh"
    kept = [":" if _is_left_out(line) else line for line in script.read_text().splitlines()]
    script.write_text("\n".join([*kept, ""]))


def _is_left_out(line: str) -> bool:
    return any(line.strip() == f"record_command run_{name}_tests" for name in LEFT_OUT)


def build_programs(folder: Path) -> None:
    """kubectl of the release that the cluster has, and the plugin that the suite tests with it."""
    folder.mkdir()
    (folder / "kubectl").symlink_to(release.cache_folder() / "kubectl")
    module = Path(build.__file__).resolve().parents[3] / "hack" / "kube"
    with tempfile.TemporaryDirectory() as name:
        for file in ("go.mod", "go.sum", "tools.go"):
            shutil.copyfile(module / file, Path(name) / file)
        command = [build.find_go(), "build", "-o", str(folder / "kubectl-convert"), f"{MODULE}/cmd/kubectl-convert"]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
        subprocess.run(command, cwd=name, env=environment, check=True)


async def run(folder: Path, tests: list[str]) -> str:
    """The output of the suite, on a cluster that is gone afterwards."""
    authority = Authority.create(LOOPBACK)  # the name that the tests expect of the authority
    ca = folder / "apiserver.crt"  # where the tests look for a certificate
    ca.write_bytes(authority.certificate)
    certificate, key = authority.serving("apiserver", hosts=[LOOPBACK, "localhost"]).write(folder, name="tls")
    api = ApiServer(
        signing_key=new_key(),
        static_tokens={TOKEN: User("admin", (MASTERS, "system:authenticated"))},
        client_ca=ca,
    )
    api.admission.pods_are_completed = False  # the suite's server has no admission of service accounts
    with PortRegistry() as ports:
        port = ports.take()
        api.publish_address(port)
        config = credentials.from_dict(_kubeconfig(f"https://{LOOPBACK}:{port}"))
        async with (
            Listener(api, port=port, serving=Serving(certificate, key, ca)),
            KubeClient(config, user_agent="kube-controller-manager") as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(Controllers(client, ControllerOptions(scheduler=False, authority=authority)).run)
            environment = {
                **os.environ,
                "KUBE_ROOT": str(folder / "source"),
                "THIS_PLATFORM_BIN": str(folder / "bin"),
                "SECURE_API_PORT": str(port),
                "KUBE_JUNIT_REPORT_DIR": str(folder / "junit"),
                "TMPDIR": str(folder),
                "WHAT": " ".join(tests),
            }
            with anyio.fail_after(_SECONDS):
                command = ["bash", "-c", SETUP]
                ended = await anyio.run_process(command, env=environment, check=False, stderr=subprocess.STDOUT)
            tasks.cancel_scope.cancel()
    return ended.stdout.decode(errors="replace")


def _kubeconfig(server: str) -> dict[str, object]:
    cluster = {"server": server, "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "suite", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "suite", "context": {"cluster": "suite", "user": "admin"}}],
        "current-context": "suite",
    }


def report(log: str) -> int:
    """Print the tests that failed, with their last lines; the exit code."""
    ran = re.findall(r"^Running command: run_(\w+)$", log, re.MULTILINE)
    failed = re.findall(r"^Error when running run_(\w+)$", log, re.MULTILINE)
    for name in failed:
        before = log[: log.index(f"Error when running run_{name}\n")].splitlines()
        print(f"failed: {name}", *(f"    {line}" for line in before[-12:]), sep="\n")
    for name, reason in LEFT_OUT.items():
        print(f"left out: {name}: {reason}")
    print(f"{len(ran)} ran, {len(failed)} failed, {len(LEFT_OUT)} left out")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
