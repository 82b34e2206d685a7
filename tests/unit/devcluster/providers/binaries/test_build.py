# SPDX-License-Identifier: Apache-2.0
"""Building with Go: what is asked of it, what is shown meanwhile, and what a failure tells to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devcluster.errors import BinariesUnavailable
from devcluster.progress import Step
from devcluster.providers.binaries import build, release

# Answers like Go does: `env` with a version, `list` with packages, `build -v` with what it compiles and the programs.
FAKE_GO = """#!/bin/sh
echo "$*" >> "$FAKE_GO_LOG"
case $1 in
env) echo "$FAKE_GO_VERSION" ;;
list)
    if [ -n "$FAKE_GO_OFFLINE" ]; then echo "dial tcp: no route to proxy.golang.org" >&2; exit 1; fi
    echo "go: downloading k8s.io/api v0.36.3" >&2
    printf 'a/one\\na/two\\na/three\\n' ;;
build)
    if [ -n "$FAKE_GO_BROKEN" ]; then echo "undefined: nonsense" >&2; exit 2; fi
    echo a/one >&2; echo a/two >&2
    while [ "$1" != -o ]; do shift; done
    out=$2; shift 2
    case $out in */) for package; do touch "$out${package##*/}"; chmod +x "$out${package##*/}"; done ;;
    *) touch "$out"; chmod +x "$out" ;; esac ;;
esac
"""


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go as the build sees it; the file that its command lines are written to."""
    program = tmp_path / "bin" / "go"
    program.parent.mkdir()
    program.write_text(FAKE_GO)
    program.chmod(0o755)
    log = tmp_path / "log"
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_GO_LOG", str(log))
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.26.8")
    return log


def test_every_program_is_built_with_its_version_stamped(fake_go: Path, tmp_path: Path) -> None:
    steps: list[Step] = []
    build.build(tmp_path, steps.append)
    assert release.missing(tmp_path) == []
    commands = fake_go.read_text()
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert f"-X {package}.gitVersion={release.KUBERNETES_VERSION}" in commands


def test_progress_counts_the_packages_that_are_done(fake_go: Path, tmp_path: Path) -> None:
    steps: list[Step] = []
    build.build(tmp_path, steps.append)
    assert Step("fetching sources: go: downloading k8s.io/api v0.36.3") in steps
    assert Step("building the control plane with Go: compiling a/two", 2, 3) in steps


@pytest.mark.parametrize(
    ("variable", "value", "want"),
    [
        ("FAKE_GO_VERSION", "go1.19.4", r"is go1\.19\.4; install Go 1\.26 or newer"),
        ("FAKE_GO_VERSION", "", r"is broken; install Go 1\.26 or newer"),
        ("FAKE_GO_OFFLINE", "1", r"(?s)is the Go module proxy reachable\?.*no route to proxy"),
        ("FAKE_GO_BROKEN", "1", r"(?s)`.* build -v …` in .* failed:.*undefined: nonsense"),
    ],
)
def test_a_failure_message_says_what_to_do(
    fake_go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, want: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BinariesUnavailable, match=want):
        build.build(tmp_path, lambda step: None)


def test_without_go_the_message_says_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "_USUAL_GO", str(tmp_path / "none"))
    with pytest.raises(BinariesUnavailable, match="Go is not installed; install Go"):
        build.build(tmp_path, lambda step: None)
