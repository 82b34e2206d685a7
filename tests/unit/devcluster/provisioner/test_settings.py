# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap of the provisioner."""

from __future__ import annotations

import pytest

from devcluster.provisioner.settings import ProvisionerSettings
from multikueue.core.errors import BadInput


def test_every_key_is_read() -> None:
    data = {
        "delaySeconds": "1",
        "queueSeconds": "2",
        "nodes": "3",
        "bookingSeconds": "4",
        "fail": "why",
        "revoke": "a/b, c/d",
    }
    assert ProvisionerSettings.of(data) == ProvisionerSettings(
        delay_seconds=1,
        queue_seconds=2,
        nodes=3,
        booking_seconds=4,
        fail="why",
        revoke=frozenset({"a/b", "c/d"}),
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param({"nodes": "many"}, "provisioner: nodes: expected a whole number", id="no number"),
        pytest.param({"delay": "1"}, 'there is no key "delay"', id="unknown key"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(data: dict[str, str], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        ProvisionerSettings.of(data)
