# SPDX-License-Identifier: Apache-2.0
"""What holds for all component tests: connections end before leaks are looked for, and which target runs real servers.

`make test` has minutes, and a real control plane takes six seconds to start. What is listed here shows within them that
the main job works on real servers; all else that needs them runs with `make conformance`, which CI runs as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.sockets import sockets_settle

__all__ = ["sockets_settle"]

_HERE: Final = Path(__file__).parent
_ALWAYS: Final = frozenset(
    {
        "api/test_definitions.py",
        "dispatch/test_dispatch.py",
        "manager/test_local_admission.py",
        "worker_agent/test_agent.py",
    }
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the other tests on real servers run with `make conformance`."""
    for item in items:
        if (
            _HERE in item.path.parents
            and item.get_closest_marker("binaries") is not None
            and item.path.relative_to(_HERE).as_posix() not in _ALWAYS
        ):
            item.add_marker(pytest.mark.conformance)
