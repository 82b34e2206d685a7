# SPDX-License-Identifier: Apache-2.0
"""docs/reference/annotations.md tells of every annotation and label that we know by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devcluster.kubelet import behaviour
from multikueue.api import constants
from multikueue.dispatch.protocol import wire

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "annotations.md").read_text()
NAMES = {
    name: value
    for module in (constants, behaviour, wire)
    for name, value in vars(module).items()
    if re.search("_(ANNOTATION|LABEL)$", name) and isinstance(value, str)
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_it_documents(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_it_documents_no_other_of_ours() -> None:
    found = set(re.findall(r"`(multikueue\.io/[a-z-]+)`", PAGE))
    assert found <= {*NAMES.values(), "multikueue.io/bootstrap-of"}
