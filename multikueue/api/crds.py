# SPDX-License-Identifier: Apache-2.0
"""The CustomResourceDefinitions of every kind we serve.

Names, versions, columns, subresources and conversion are here; schemas come from the models. `crds/` has the output,
which `hack/gen_crds.py --check` compares. Kinds whose versions differ in shape use a conversion webhook from the start:
an API server without the manager accepts v1beta2 and refuses v1beta1, where the strategy None would drop `cohort`
without an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import orjson

from multikueue.api.codec import model_of
from multikueue.api.constants import DEFAULT_NAMESPACE
from multikueue.api.crds_v1beta1 import columns_v1beta1, schema_v1beta1
from multikueue.api.meta import JsonObject, KubeObject
from multikueue.api.resource import KUEUE_RESOURCES, OWN_RESOURCES, Resource
from multikueue.api.schema import Column
from multikueue.api.structural import kind_schema

WEBHOOK_SERVICE: Final = "kueue-webhook-service"
CONVERSION_PATH: Final = "/convert"
CONVERTED_KINDS: Final = frozenset({"ClusterQueue", "LocalQueue", "Cohort", "Workload", "MultiKueueCluster"})
"""The kinds whose two versions differ in shape (`docs/spec/kueue-api.md §1.0`)."""
_DEPRECATION: Final = "This version is deprecated. Use v1beta2 instead."
_SILENT_KINDS: Final = frozenset({"MultiKueueConfig"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionWebhook:
    """The conversion webhook: a Service of the cluster, or a URL."""

    namespace: str = DEFAULT_NAMESPACE
    service: str = WEBHOOK_SERVICE
    url: str | None = None
    ca_bundle: str | None = None

    def spec(self) -> JsonObject:
        """`spec.conversion` of a definition."""
        client: JsonObject
        if self.url is not None:
            client = {"url": self.url}
        else:
            client = {"service": {"namespace": self.namespace, "name": self.service, "path": CONVERSION_PATH}}
        if self.ca_bundle is not None:
            client["caBundle"] = self.ca_bundle
        return {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}


def manifests(*, webhook: ConversionWebhook | None = None) -> list[JsonObject]:
    """All definitions, Kueue's kinds first; `webhook` is the conversion webhook. The caller may change them."""
    found: list[JsonObject] = orjson.loads(_encoded(webhook))
    return found


@cache
def _encoded(webhook: ConversionWebhook | None) -> bytes:
    """Schemas take a tenth of a second to make, and a federation asks for them once for each cluster."""
    return orjson.dumps([definition(resource, webhook=webhook) for resource in (*KUEUE_RESOURCES, *OWN_RESOURCES)])


def definition(resource: Resource, *, webhook: ConversionWebhook | None = None) -> JsonObject:
    """The CustomResourceDefinition of one kind."""
    model = model_of(resource.group, resource.version, resource.kind)
    if model is None:
        raise LookupError(f"there is no model of {resource.kind} in {resource.api_version}")
    names: JsonObject = {
        "kind": resource.kind,
        "listKind": resource.list_kind,
        "plural": resource.plural,
        "shortNames": list(resource.short_names),
        "singular": resource.singular,
    }
    spec: JsonObject = {
        "group": resource.group,
        "names": names,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "versions": _versions(resource, model),
    }
    if resource.kind in CONVERTED_KINDS:
        spec["conversion"] = (webhook or ConversionWebhook()).spec()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified},
        "spec": spec,
    }


def _versions(resource: Resource, model: type[KubeObject]) -> list[JsonObject]:
    current = _version(resource.version, model, schema=kind_schema(model), columns=model.COLUMNS)
    current |= {"served": True, "storage": True}
    if model.SELECTABLE_FIELDS:
        current["selectableFields"] = [{"jsonPath": path} for path in model.SELECTABLE_FIELDS]
    if resource not in KUEUE_RESOURCES:
        return [current]
    columns = columns_v1beta1(resource.kind, model.COLUMNS)
    old = _version("v1beta1", model, schema=schema_v1beta1(resource.kind, kind_schema(model)), columns=columns)
    old |= {"served": True, "storage": False}
    if resource.kind not in _SILENT_KINDS:
        old |= {"deprecated": True, "deprecationWarning": _DEPRECATION}
    return [old, current]


def _version(name: str, model: type[KubeObject], *, schema: JsonObject, columns: tuple[Column, ...]) -> JsonObject:
    version: JsonObject = {"name": name, "schema": {"openAPIV3Schema": schema}}
    if columns:
        version["additionalPrinterColumns"] = [_column(column) for column in columns]
    if "status" in schema["properties"]:
        version["subresources"] = {"status": {}}
    return version


def _column(column: Column) -> JsonObject:
    written: JsonObject = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.priority:
        written["priority"] = column.priority
    return written
