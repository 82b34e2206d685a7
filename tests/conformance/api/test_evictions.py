# SPDX-License-Identifier: Apache-2.0
"""Evictions in a dry run.

No controllers run on either side; the status of pods is written by the cases.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("evictions")
Document = dict[str, Any]

PODS: Final = "/api/v1/namespaces/{ns}/pods"
ACCOUNTS: Final = "/api/v1/namespaces/{ns}/serviceaccounts"
_DRY: Final = {"dryRun": ["All"]}

for _what, _query, _options in (
    ("its options", "", _DRY),
    ("the parameter", "?dryRun=All", None),
    ("the parameter beside options", "?dryRun=All", {"gracePeriodSeconds": 5}),
    ("both", "?dryRun=All", _DRY),
):

    @CASES.case(f"a dry run by {_what} changes nothing")
    async def _(side: Side, query: str = _query, options: Document | None = _options) -> None:
        spec = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
        await side.quietly(Exchange("POST", ACCOUNTS, {"metadata": {"name": "default"}}))
        await side.post(PODS, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": spec})
        body = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}}
        more = {} if options is None else {"deleteOptions": options}
        await side.post(f"{PODS}/p/eviction{query}", {**body, **more})
        await side.get(f"{PODS}/p")


@pytest.mark.parametrize("case", CASES.params())
async def test_evictions_are_those_of_a_real_server(judge: Judge, case: Case) -> None:
    """Pods and answers."""
    await judge(case)
