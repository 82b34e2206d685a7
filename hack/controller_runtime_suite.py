#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the test suites of controller-runtime against the embedded API server.

    hack/controller_runtime_suite.py [PACKAGE...]

Fetches the Go module, and runs the tests of each package on an API server of its own without controllers, as
controller-runtime's own test environment has one. Prints what each suite reports; the exit code is 1 if one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from devcluster import kubeconfigs
from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.http.requests import MASTERS, User
from devcluster.apiserver.server import ApiServer
from devcluster.pki import new_key
from devcluster.providers.binaries import build

MODULE: Final = "sigs.k8s.io/controller-runtime@v0.25.2"
PACKAGES: Final = (
    *("client", "cache", "builder", "manager", "controller", "cluster", "source", "webhook"),
    *("internal/recorder", "internal/controller"),
)


def main() -> int:
    """Run the suites of the packages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    chosen = parser.parse_args()
    go = build.find_go()
    found = subprocess.run([go, "mod", "download", "-json", MODULE], capture_output=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        shutil.copytree(json.loads(found.stdout)["Dir"], source)
        subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)
        passed = [anyio.run(run, go, source, package) for package in chosen.packages]
    return 0 if all(passed) else 1


async def run(go: str, source: Path, package: str) -> bool:
    """Run the suite of one package on a new server."""
    api = ApiServer(signing_key=new_key())
    api.authentication.insecure = User("admin", (MASTERS, "system:authenticated"))
    # Pods need no service account, which no controller would create.
    api.admission.pods_are_completed = False
    async with Listener(api) as listener:
        api.publish_address(listener.port)
        config = kubeconfigs.with_token(cluster="suite", server=listener.url, user="admin", token="token")
        kubeconfig = kubeconfigs.write(config, source / "kubeconfig")
        environment = {
            **os.environ,
            "USE_EXISTING_CLUSTER": "true",
            "KUBECONFIG": str(kubeconfig),
            "CGO_ENABLED": "0",
            "GOFLAGS": "-mod=mod",
        }
        command = [go, "test", "-v", f"./pkg/{package}", "-args", "--ginkgo.no-color"]
        ended = await anyio.run_process(command, cwd=source, env=environment, check=False)
    lines = ended.stdout.decode(errors="replace").splitlines()
    print(f"{package}: {'passed' if ended.returncode == 0 else 'failed'}", flush=True)
    for line in lines:
        if line.startswith(("Ran ", "FAIL!", "SUCCESS!")) or "[FAIL]" in line:
            print(f"    {line.strip()}", flush=True)
    return ended.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
