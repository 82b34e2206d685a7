# SPDX-License-Identifier: Apache-2.0
"""Who writes is told by the API server, not by the field manager's name that anybody may give."""

from __future__ import annotations

import pytest

from devcluster.cluster import Cluster
from multikueue.api.constants import ADMISSION_FIELD_MANAGER
from multikueue.api.resource import WORKLOADS
from multikueue.kube.errors import Forbidden
from tests.support.managers import connections_closed, is_true, make_job, make_queue, running_manager, wait_condition
from tests.support.tenant_hubs import hub as hub
from tests.support.tenant_hubs import tenant

pytestmark = pytest.mark.anyio

WRITES_STATUS = (
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "workloads/status"], "verbs": ["get", "patch"]},
)


async def test_a_status_under_the_managers_field_manager_is_checked_unless_it_is_the_managers(hub: Cluster) -> None:
    async with connections_closed(), hub.client() as admin, running_manager(hub):
        await make_queue(admin, "fields", namespace="fields", cpu="4")
        await make_job(admin, "j", namespace="fields", queue="fields")
        # The manager's own writes under that name go through.
        admitted = await wait_condition(admin, "j", "Admitted", namespace="fields")
        name = admitted["metadata"]["name"]
        async with tenant(hub, admin, "forger", rules=WRITES_STATUS) as forger:
            wrong = {"status": {"admission": {"clusterQueue": "fields", "podSetAssignments": [{"name": "another"}]}}}
            with pytest.raises(Forbidden, match="podSetAssignments"):
                await forger.patch(
                    WORKLOADS, name, wrong, namespace="fields", subresource="status", manager=ADMISSION_FIELD_MANAGER
                )
        assert is_true(await admin.get_object(WORKLOADS, name, namespace="fields"), "Admitted")
