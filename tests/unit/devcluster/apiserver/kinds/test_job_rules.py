# SPDX-License-Identifier: Apache-2.0
"""The name of an indexed Job must make a hostname with each index, as on a real server."""

from __future__ import annotations

import pytest

from devcluster.apiserver.kinds.job_rules import hostname_problems


@pytest.mark.parametrize(
    ("name", "mode", "completions", "refused"),
    [
        pytest.param("a", "Indexed", 3, "", id="a short name"),
        pytest.param("a" * 61, "Indexed", 10, "", id="63 characters with the largest index"),
        pytest.param("a" * 61, "Indexed", 11, f"{'a' * 61}-10", id="64 characters with the largest index"),
        pytest.param("a.b", "Indexed", 1, "a.b-0", id="a name with a dot"),
        pytest.param("a.b", "NonIndexed", 1, "", id="not indexed"),
        pytest.param("a.b", "Indexed", None, "", id="no completions"),
    ],
)
def test_a_name_makes_a_hostname_or_is_refused(name: str, mode: str, completions: int | None, refused: str) -> None:
    spec = {"completionMode": mode, "completions": completions}
    found = hostname_problems({"metadata": {"name": name}, "spec": spec})
    wanted = f'Invalid value: "{name}": will not able to create pod with invalid DNS label: {refused}'
    assert [(cause.field, cause.message) for cause in found] == ([("metadata.name", wanted)] if refused else [])
