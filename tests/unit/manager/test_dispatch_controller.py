# SPDX-License-Identifier: Apache-2.0
"""What wakes dispatch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import orjson

from manager.dispatch.controller import DispatchController
from multikueue.api.resource import ADMISSION_CHECKS
from multikueue.core.keys import Key
from multikueue.kube.header import read_row
from multikueue.kube.informer import Change


def test_an_admission_check_without_a_spec_which_its_schema_allows_wakes_nobody_and_breaks_nothing() -> None:
    woken: list[Key] = []
    controller = SimpleNamespace(
        _checks=SimpleNamespace(names=()), _check_controller=SimpleNamespace(enqueue=woken.append)
    )
    metadata = {"name": "bare", "uid": "u", "resourceVersion": "1"}
    body = {"apiVersion": ADMISSION_CHECKS.api_version, "kind": ADMISSION_CHECKS.kind, "metadata": metadata}
    row = read_row(orjson.dumps(body))
    DispatchController._on_check(cast(DispatchController, controller), Change("ADDED", row.key, None, row))
    assert woken == []
