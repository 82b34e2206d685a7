# SPDX-License-Identifier: Apache-2.0
"""Generate the schema of a pod template, for the Workload CRD, from the OpenAPI document of a real API server.

    kubectl get --raw /openapi/v3/api/v1 | python hack/gen_pod_template.py [--check]

References are resolved, and descriptions and fields that a structural schema must not have are removed. A template's
metadata has only the fields that apply to a template. With --check nothing is written; a difference is exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "multikueue/api/schemas/podtemplatespec.json"
ROOT = "io.k8s.api.core.v1.PodTemplateSpec"
KEPT = (
    "type",
    "format",
    "default",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
SPECIAL: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": INT_OR_STRING | {"pattern": QUANTITY_PATTERN},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": INT_OR_STRING,
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {
        "type": "object",
        "properties": {
            "annotations": STRINGS,
            "finalizers": {"type": "array", "items": {"type": "string"}},
            "labels": STRINGS,
            "name": {"type": "string"},
            "namespace": {"type": "string"},
        },
    },
}


def flatten(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """`schema` with resolved references, reduced to the fields of a structural schema."""
    references = [part["$ref"] for part in schema.get("allOf", ()) if "$ref" in part]
    if "$ref" in schema:
        references.append(schema["$ref"])
    if references:
        name = references[0].rpartition("/")[2]
        base = SPECIAL.get(name) or flatten(schemas[name], schemas)
        # The empty default next to a reference is an artefact of Go's zero value and would add absent structs.
        own = {key: value for key, value in schema.items() if key in KEPT and not (key == "default" and value == {})}
        return base | own
    flat = {key: value for key, value in schema.items() if key in KEPT}
    if "properties" in schema:
        flat["properties"] = {name: flatten(value, schemas) for name, value in schema["properties"].items()}
        for name in schema.get("required", ()):
            # Go's zero value, published for fields without omitempty, would make a required field optional.
            if flat["properties"][name].get("default") in ("", 0):
                del flat["properties"][name]["default"]
    if "items" in schema:
        flat["items"] = flatten(schema["items"], schemas)
        flat["items"].pop("default", None)
    if isinstance(schema.get("additionalProperties"), dict):
        flat["additionalProperties"] = flatten(schema["additionalProperties"], schemas)
        flat["additionalProperties"].pop("default", None)
    if "required" in flat:
        flat["required"] = sorted(flat["required"])
    return flat


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    schemas = json.load(sys.stdin)["components"]["schemas"]
    text = json.dumps(flatten(schemas[ROOT], schemas), indent=1, sort_keys=True) + "\n"
    if arguments.check:
        if TARGET.exists() and TARGET.read_text() == text:
            return 0
        print(f"{TARGET} differs from the document of the API server", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
