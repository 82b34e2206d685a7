# SPDX-License-Identifier: Apache-2.0
"""The names of requests and templates are those of Kueue, and valid for every Workload."""

from __future__ import annotations

import pytest

from multikueue.api.names import dns_subdomain
from multikueue.provisioning.requests import request_name, template_name


def test_a_request_is_named_after_workload_check_and_attempt() -> None:
    assert request_name("job-a-12345", "prov", 2) == "job-a-12345-prov-2"


def test_a_template_is_named_after_its_request_and_pod_set() -> None:
    assert template_name("job-a-12345-prov-2", "main") == "ppt-job-a-12345-prov-2-main"


@pytest.mark.parametrize("workload", ["w" * 253, "w" * 246 + ".w", ("w" * 60 + ".") * 4 + "w"])
def test_a_long_name_is_cut_and_stays_valid_and_different_for_each_attempt(workload: str) -> None:
    first, second = request_name(workload, "prov", 1), request_name(workload, "prov", 2)
    assert first != second
    assert list(dns_subdomain(first)) == []
    assert first[:200] == workload[:200]
    assert list(dns_subdomain(template_name(first, "main"))) == []
