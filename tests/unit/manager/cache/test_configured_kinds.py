# SPDX-License-Identifier: Apache-2.0
"""The kinds that a manager follows only if its Configuration needs them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson
import pytest

from manager.cache.configured_kinds import configured_kinds
from manager.cache.indexes import followed
from multikueue.api.configuration import Configuration
from multikueue.api.resource import CLUSTER_PROFILES, DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES
from multikueue.engine import decode
from multikueue.kube.cache.packing import unpacked

MAPPINGS = {"deviceClassMappings": [{"name": "gpus", "deviceClassNames": ["gpu.example.com"]}]}
PROFILES = {"featureGates": {"MultiKueueClusterProfile": True}}


@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [
        pytest.param({}, (), id="none by default"),
        pytest.param(PROFILES, (CLUSTER_PROFILES,), id="profiles of clusters"),
        pytest.param({"resources": MAPPINGS}, (DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES), id="devices"),
        pytest.param(
            {"resources": MAPPINGS, "featureGates": {"KueueDRAIntegration": False}}, (), id="devices that do not count"
        ),
        pytest.param(
            {"resources": MAPPINGS} | PROFILES,
            (CLUSTER_PROFILES, DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES),
            id="all of them",
        ),
    ],
)
def test_a_kind_is_followed_where_the_configuration_needs_it(wanted: dict[str, Any], kinds: tuple[Any, ...]) -> None:
    configured = configured_kinds(Configuration.model_validate(wanted), namespace="own")
    assert tuple(each.resource for each in configured) == kinds
    all_kinds = {each.resource for each in followed(namespace="own", jobs=(), configured=configured)}
    assert all_kinds.intersection({CLUSTER_PROFILES, DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES}) == set(kinds)


def test_devices_are_optional_and_of_all_namespaces_and_profiles_are_of_the_manager_s_own() -> None:
    configuration = Configuration.model_validate({"resources": MAPPINGS} | PROFILES)
    profiles, classes, templates = configured_kinds(configuration, namespace="own")
    assert (profiles.namespace, profiles.optional) == ("own", "")
    for kind in (classes, templates):
        assert (kind.namespace, kind.framework, kind.on_demand) == (None, "", False)
        assert kind.optional.startswith("devices that pods claim cannot be counted")


def test_of_a_template_only_what_is_counted_is_kept() -> None:
    configuration = Configuration.model_validate({"resources": MAPPINGS})
    classes, templates = configured_kinds(configuration, namespace="own")
    assert classes.shrink is not None
    assert templates.shrink is not None
    selectors = [{"cel": {"expression": "x" * 10_000}}]
    exactly = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 2, "selectors": selectors}
    choice = {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "d", "selectors": selectors}]}
    requests = [{"name": "a", "exactly": exactly}, choice]
    metadata = {"name": "t", "namespace": "team", "uid": "u", "resourceVersion": "1", "labels": {"a": "x" * 10_000}}
    whole = {"metadata": metadata, "spec": {"spec": {"devices": {"requests": requests, "config": [{"a": "b"}]}}}}
    kept = orjson.loads(unpacked(templates.shrink(deepcopy(whole))))
    assert len(orjson.dumps(kept)) < 400
    assert decode.claim_template(kept) == decode.claim_template(whole)
    backed = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "x/gpu", "selectors": selectors}}
    assert orjson.loads(unpacked(classes.shrink(deepcopy(backed))))["spec"] == {"extendedResourceName": "x/gpu"}
