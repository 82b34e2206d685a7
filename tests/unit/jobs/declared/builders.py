# SPDX-License-Identifier: Apache-2.0
"""The examples of `docs/jobs`, the declared kinds, and what a controller and an API server do to a job."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any, Final

import yaml

from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.paths import value_at, with_value
from multikueue.jobs.declared.reading import read_declaration
from multikueue.jobs.declared.shipped import declared_integrations
from multikueue.jobs.framework.protocol import JobWrite, PodSetInfo, RemoteIdentity
from multikueue.jobs.framework.workloads import Priority, workload_for

PAGES: Final = Path(__file__).parents[4] / "docs" / "jobs"
IN_PYTHON: Final = ("deployment", "job", "leaderworkerset", "pod", "statefulset")
"""The pages of kinds that have no declaration."""
OF_NO_KIND: Final = ("README", "elastic", "external-frameworks", "your-own-kind")
PAGES_OF_KINDS: Final = tuple(
    sorted(page.stem for page in PAGES.glob("*.md") if page.stem not in (*OF_NO_KIND, *IN_PYTHON))
)
"""Of the declared kinds that are shipped."""
IDENTITY: Final = RemoteIdentity(
    workload_name="widget-w-12345", origin="mk", epoch=3, manager_uid="m", cluster="w1", assignment="a"
)
SPOT: Final = {"pool": "spot"}
TOLERATION: Final = {"key": "spot", "operator": "Exists"}
_BLOCK: Final = re.compile(r"```yaml\n(.*?)```", re.DOTALL)

WIDGET: Final = """
apiVersion: multikueue.io/v1alpha1
kind: JobKind
metadata: {name: example.com/widget}
spec:
  resource: {group: example.com, versions: [v1], kind: Widget, plural: widgets}
  suspend: {path: $.spec.suspend}
  podSets:
    - name: main
      template: $.spec.template
      count: {path: $.spec.size, default: 1}
"""


def blocks(page: str) -> list[str]:
    """The YAML of a page, block by block."""
    return _BLOCK.findall((PAGES / f"{page}.md").read_text())


def example(page: str) -> dict[str, Any]:
    """The example of a kind's page, suspended as the webhook leaves it."""
    (text,) = blocks(page)
    job: dict[str, Any] = yaml.safe_load(text)
    job["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    kind = kind_of(job)
    if kind.spec.suspend is not None:
        job = with_value(job, kind.spec.suspend.path.keys or (), kind.spec.suspend.value)
    return job


def kind_of(job: dict[str, Any]) -> DeclaredIntegration:
    """The shipped integration of a job."""
    group = job["apiVersion"].rpartition("/")[0]
    for each in declared_integrations().values():
        if (each.resource.group, each.resource.kind) == (group, job["kind"]):
            assert isinstance(each, DeclaredIntegration)
            return each
    raise AssertionError(f"no integration of {group} {job['kind']}")


def widget_kind(**spec: Any) -> DeclaredIntegration:
    """A kind with one pod set, with these fields of its spec replaced."""
    document = yaml.safe_load(WIDGET)
    document["spec"] |= spec
    return DeclaredIntegration(read_declaration(yaml.safe_dump(document), origin="widget.yaml"))


def widget(status: Any = None, labels: Any = None, **spec: Any) -> dict[str, Any]:
    """A job of that kind."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "labels": labels or {}},
        "spec": {"suspend": True, "size": 3, "template": {"spec": {"containers": [{"name": "c"}]}}} | spec,
        "status": status or {},
    }


def workload(job: dict[str, Any], kind: DeclaredIntegration) -> dict[str, Any]:
    """The Workload of a job."""
    return workload_for(job, kind, priority=Priority())


def infos(job: dict[str, Any], kind: DeclaredIntegration) -> list[PodSetInfo]:
    """An admission of every pod set to spot nodes."""
    return [
        PodSetInfo(
            name=each["name"],
            count=each["count"],
            labels={"kueue.x-k8s.io/podset": each["name"]},
            node_selector=SPOT,
            tolerations=(TOLERATION,),
        )
        for each in kind.pod_sets(job)
    ]


def written(job: dict[str, Any], write: JobWrite | None) -> dict[str, Any]:
    """The job after a write, as an API server merges it (RFC 7386)."""
    assert write is not None
    merged: dict[str, Any] = _merged(job, write.body)
    return merged


def suspended_in(job: dict[str, Any], kind: DeclaredIntegration) -> Any:
    """The value of the field that suspends it."""
    assert kind.spec.suspend is not None
    return value_at(job, kind.spec.suspend.path.keys or ())


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    out = copy.deepcopy(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = _merged(out.get(key), value)
    return out
