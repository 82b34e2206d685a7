# SPDX-License-Identifier: Apache-2.0
"""A terminal for tests that use mkctl and kubectl as a person does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


class Hand:
    """A terminal: runs mkctl and kubectl and reads what they print."""

    def __init__(self, *, home: Path, kubectl: Path) -> None:
        self._environment = {**os.environ, "XDG_STATE_HOME": str(home)}
        self._kubectl = str(kubectl)

    def mkctl(self, *arguments: str, code: int | None = 0) -> str:
        """What mkctl prints; fails on another exit code, unless that does not matter."""
        main = "from multikueue.cli.main import main; main()"
        return self._run(sys.executable, "-c", main, *arguments, code=code)

    def kubectl(self, *arguments: str, cluster: str = "hub") -> str:
        """What kubectl prints about a cluster."""
        kubeconfig = self.mkctl("kubeconfig", cluster).strip()
        return self._run(self._kubectl, "--kubeconfig", kubeconfig, *arguments)

    def kubectl_of(self, kubeconfig: str, *arguments: str) -> str:
        """What kubectl prints with `$KUBECONFIG` set to that file, or to several with colons between."""
        self._environment["KUBECONFIG"] = kubeconfig
        try:
            return self._run(self._kubectl, *arguments)
        finally:
            del self._environment["KUBECONFIG"]

    def _run(self, *command: str, code: int | None = 0) -> str:
        with subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            output, errors = child.communicate(timeout=150)
        assert code in (None, child.returncode), f"{' '.join(command)}: {child.returncode}: {errors}\n{output}"
        return output
