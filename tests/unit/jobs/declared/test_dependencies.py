# SPDX-License-Identifier: Apache-2.0
"""What the pods of a job need is found in the jobs of every kind."""

from __future__ import annotations

import re

import pytest
import yaml

from multikueue.dispatch.policy.pod_specs import pod_specs
from multikueue.dispatch.worker.dependencies import Dependency, dependencies
from multikueue.jobs.framework.registry import known_integrations
from tests.unit.jobs.declared.builders import IN_PYTHON, PAGES, PAGES_OF_KINDS

SECRET = Dependency("Secret", "license")


NOT_HERE = ("deployment", "sparkapplication", "trainjob")
"""The pods of the first are the jobs; the pod templates of the others are made by their operators."""


@pytest.mark.parametrize("page", [page for page in (*PAGES_OF_KINDS, *IN_PYTHON) if page not in NOT_HERE])
def test_a_secret_in_any_pod_template_of_the_example_is_found(page: str) -> None:
    text = re.findall(r"```yaml\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.DOTALL)[0]
    job = next(each for each in yaml.safe_load_all(text) if each["kind"] != "Secret")
    group = job["apiVersion"].rpartition("/")[0]
    kind = next(
        each
        for each in known_integrations().values()
        if (each.resource.group, each.resource.kind) == (group, job["kind"])
    )
    assert SECRET not in dependencies(kind.pod_sets(job))
    found = list(pod_specs(job))
    assert found, "the example has pod templates"
    for each in found:
        assert isinstance(each.spec, dict)
        each.spec["volumes"] = [
            *(each.spec.get("volumes") or ()),
            {"name": "license", "secret": {"secretName": SECRET.name}},
        ]
    assert SECRET in dependencies(kind.pod_sets(job))
