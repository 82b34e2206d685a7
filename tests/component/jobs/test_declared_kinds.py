# SPDX-License-Identifier: Apache-2.0
"""Every declared kind on an API server: its Workload is accepted, and what is written is what was meant."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import yaml

from multikueue.api.constants import QUEUE_NAME_LABEL
from multikueue.api.resource import WORKLOADS
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.reading import read_declaration
from multikueue.jobs.declared.shipped import declared_integrations
from multikueue.jobs.framework.protocol import JobWrite
from multikueue.kube.rest.client import KubeClient
from tests.unit.jobs.declared.builders import IDENTITY, PAGES_OF_KINDS, blocks, example, infos, kind_of, workload

NAMESPACE = "default"


def shipped(page: str) -> tuple[DeclaredIntegration, dict[str, Any]]:
    job = example(page)
    return kind_of(job), job


def unknown() -> tuple[DeclaredIntegration, dict[str, Any]]:
    """The kind of the page that no code knows."""
    texts = blocks("your-own-kind")
    (declaration,) = (text for text in texts if text.startswith("apiVersion: multikueue.io/v1alpha1"))
    (job,) = (yaml.safe_load(text) for text in texts if text.startswith("apiVersion: studio.example.com/v1"))
    job["spec"]["paused"] = True
    return DeclaredIntegration(read_declaration(declaration, origin="render-kind.yaml")), job


async def write(client: KubeClient, kind: DeclaredIntegration, name: str, write: JobWrite | None) -> dict[str, Any]:
    assert write is not None
    resource, subresource = kind.resource, write.subresource or None
    answer = await client.patch(resource, name, write.body, namespace=NAMESPACE, subresource=subresource)
    found: dict[str, Any] = orjson.loads(answer)
    return found


@pytest.mark.parametrize("page", [*PAGES_OF_KINDS, "your-own-kind"])
async def test_a_job_is_queued_started_stopped_and_sent(client: KubeClient, page: str) -> None:
    kind, job = unknown() if page == "your-own-kind" else shipped(page)
    # The example of a kind whose pods are queued one by one has the label in its pod templates.
    labels = job["metadata"].get("labels") or {QUEUE_NAME_LABEL: "user-queue"}
    job["metadata"] = {"name": job["metadata"]["name"], "labels": labels, "namespace": NAMESPACE}
    name = job["metadata"]["name"]
    created = orjson.loads(await client.create(kind.resource, job, namespace=NAMESPACE))

    of = workload(created, kind)
    stored = orjson.loads(await client.create(WORKLOADS, of, namespace=NAMESPACE))
    assert kind.matches(created, stored)

    added = infos(created, kind)
    if kind.spec.suspend is not None:
        started = await write(client, kind, name, kind.start(created, added))
        assert not kind.is_suspended(started)
        assert kind.matches(started, stored, added)
        stopped = await write(client, kind, name, kind.stop(started, stored["spec"]["podSets"]))
        assert stopped["spec"] == created["spec"]

    remote = kind.remote_manifest(created, added, identity=IDENTITY)
    remote["metadata"]["name"] = f"{name}-remote"
    sent = orjson.loads(await client.create(kind.resource, remote, namespace=NAMESPACE))
    assert sent["spec"] == remote["spec"]

    status = {"message": "shown", "layers": [{"name": "sky", "ready": 1}]}
    shown = await write(client, kind, name, kind.sync_status(created, status).write)
    assert shown["status"] == status
    assert kind.sync_status(shown, status).write is None


def test_every_shipped_kind_is_played() -> None:
    assert {kind_of(example(page)).framework for page in PAGES_OF_KINDS} == set(declared_integrations())
