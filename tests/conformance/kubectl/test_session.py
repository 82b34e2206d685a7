# SPDX-License-Identifier: Apache-2.0
"""The kubectl session of a working day, with the same output on both servers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import pytest

from devcluster.providers.binaries.release import KUBECTL, Binaries
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Side
from tests.conformance.kubectl.playing import Player
from tests.conformance.kubectl.script import Chapter, read

pytestmark = pytest.mark.binaries

_SESSION: Final = Path(__file__).with_name("session")
CHAPTERS: Final = [chapter for path in sorted(_SESSION.glob("*.txt")) for chapter in read(path)]


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kubectl keeps what it has learnt of each server."""
    return tmp_path_factory.mktemp("kubectl")


@pytest.mark.usefixtures("our_kinds")
@pytest.mark.parametrize("chapter", [pytest.param(chapter, id=chapter.title) for chapter in CHAPTERS])
async def test_kubectl_prints_the_same(chapter: Chapter, judge: Judge, kube_binaries: Binaries, folder: Path) -> None:
    await judge(Case("kubectl", chapter.title, partial(_play, chapter, kube_binaries.path(KUBECTL), folder)))


async def _play(chapter: Chapter, kubectl: Path, folder: Path, side: Side) -> None:
    await Player(side, kubectl=kubectl, folder=folder).play(chapter)
