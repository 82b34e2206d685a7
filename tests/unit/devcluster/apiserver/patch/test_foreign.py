# SPDX-License-Identifier: Apache-2.0
"""The check of an object against the versions of its managers."""

from __future__ import annotations

import pytest

from devcluster.apiserver.patch.foreign import ForeignVersions, VersionMismatch
from devcluster.apiserver.schema import structural

VERSIONS = ForeignVersions(
    "a.test",
    {
        name: structural.read({"type": "object", "properties": {field: {"type": "string"}}}, root=True)
        for name, field in (("v1", "new"), ("v1beta1", "old"))
    },
    requested="a.test/v1",
)


def test_the_requested_version_is_not_checked() -> None:
    VERSIONS.check({"old": "x"}, ["a.test/v1"])


def test_a_field_that_a_version_does_not_have_is_a_mismatch() -> None:
    VERSIONS.check({"old": "x"}, ["a.test/v1beta1"])
    with pytest.raises(VersionMismatch, match=r"^at a.test/v1beta1: \.new: field not declared in schema$"):
        VERSIONS.check({"new": "x"}, ["a.test/v1", "a.test/v1beta1"], lambda version: f"at {version}: ")


@pytest.mark.parametrize("version", ["a.test/v2", "b.test/v1beta1", "v1"])
def test_a_version_that_the_kind_does_not_have_is_a_mismatch(version: str) -> None:
    with pytest.raises(VersionMismatch, match=f"^request to convert CR to an invalid group/version: {version}$"):
        VERSIONS.check({}, [version])
