# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from multikueue.core.errors import BadInput
from multikueue.federation.dispatchers.all_at_once import all_at_once
from multikueue.federation.dispatchers.external import external
from multikueue.federation.dispatchers.registry import dispatcher


def test_a_builtin_is_found_by_name_and_any_other_name_is_a_program_of_the_users() -> None:
    assert dispatcher("kueue.x-k8s.io/multikueue-dispatcher-all-at-once") is all_at_once
    assert dispatcher("example.com/cheapest-first") is external


@pytest.mark.parametrize(
    "name", ["kueue.x-k8s.io/multikueue-dispatcher-incremental", "multikueue.io/dispatcher-capacity"]
)
def test_a_builtin_that_is_not_there_is_refused_for_nobody_would_nominate(name: str) -> None:
    with pytest.raises(BadInput, match="is not built in; there is"):
        dispatcher(name)
