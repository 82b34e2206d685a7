# SPDX-License-Identifier: Apache-2.0
"""Bytes and dicts to models and back.

Owns which model reads which group, version and kind, and the reading of manifests. Promises that an object of an
older Kueue version comes out as the one version used inside, that `dump(load(x))` keeps every field it does not
know, and that a kind's module is imported when its first object is read. Raises `BadInput` that names the object and
the path of what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, TypeVar, cast

from pydantic import ValidationError

from multikueue.api.meta import KubeObject
from multikueue.api.objects import JsonObject
from multikueue.api.objects import describe as describe
from multikueue.api.resource import KUEUE_GROUP, KUEUE_VERSION, OWN_GROUP, OWN_VERSION
from multikueue.core.errors import BadInput

Model = TypeVar("Model", bound=KubeObject)

MODELS: Final[Mapping[tuple[str, str, str], str]] = {
    **{
        (KUEUE_GROUP, KUEUE_VERSION, kind): f"multikueue.api.{kind.lower()}"
        for kind in (
            "Workload",
            "ClusterQueue",
            "LocalQueue",
            "Cohort",
            "ResourceFlavor",
            "AdmissionCheck",
            "MultiKueueCluster",
            "MultiKueueConfig",
            "ProvisioningRequestConfig",
            "Topology",
            "WorkloadPriorityClass",
        )
    },
    **{
        (OWN_GROUP, OWN_VERSION, kind): f"multikueue.api.{kind.lower()}"
        for kind in ("RemoteAssignment", "ClusterReport", "ClusterRegistration", "JobLogRequest")
    },
    ("batch", "v1", "Job"): "multikueue.api.job",
}
"""The module that holds the model of each kind; the class is named as the kind."""


def split_api_version(api_version: str) -> tuple[str, str]:
    """Group and version; the core group is empty."""
    group, _, version = api_version.rpartition("/")
    return group, version


def model_of(group: str, version: str, kind: str) -> type[KubeObject] | None:
    """The model that reads this kind, or None when there is none."""
    module = MODELS.get((group, version, kind))
    return None if module is None else cast(type[KubeObject], getattr(import_module(module), kind))


def load(data: bytes | str | JsonObject) -> KubeObject:
    """The model of an object of any kind we have one for. Raises `BadInput`."""
    obj = data if isinstance(data, dict) else _parse(data)
    found = loads_any(obj)
    if isinstance(found, dict):
        raise BadInput(f"{describe(obj)}: there is no model of {obj.get('apiVersion')}/{obj.get('kind')}")
    return found


def load_as(model: type[Model], data: bytes | str | JsonObject) -> Model:
    """The object parsed as `model`, whatever its kind; items of a list have none. Raises `BadInput`."""
    obj = data if isinstance(data, dict) else _parse(data)
    return _validate(model, _current(obj))


def loads_any(data: bytes | str | JsonObject) -> KubeObject | JsonObject:
    """The model of the object, or the dict itself when there is no model of its kind. Raises `BadInput`."""
    obj = _current(data if isinstance(data, dict) else _parse(data))
    group, version = split_api_version(str(obj.get("apiVersion", "")))
    model = model_of(group, version, str(obj.get("kind", "")))
    return obj if model is None else _validate(model, obj)


def dump(model: KubeObject) -> bytes:
    """JSON of what was set, with `apiVersion` and `kind`; absent and null are the same and left out."""
    import orjson  # 10 ms that reading a manifest does not need

    return orjson.dumps(to_dict(model))


def to_dict(model: KubeObject) -> JsonObject:
    """What `dump` writes, as a dict of plain JSON values."""
    body = model.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    return {"apiVersion": model.RESOURCE.api_version, "kind": model.RESOURCE.kind} | body


def documents(text: bytes | str, *, source: str = "manifest") -> Iterator[JsonObject]:
    """Each object of a YAML or JSON manifest; lists are taken apart, empty documents skipped.

    Raises `BadInput` naming `source` and the position of what cannot be read.
    """
    import yaml

    try:
        for index, document in enumerate(yaml.load_all(text, Loader=_yaml_loader())):
            for obj in _objects(document):
                if not isinstance(obj, dict):
                    raise BadInput(f"{source}: document {index + 1}: expected an object, got {type(obj).__name__}")
                yield obj
    except yaml.YAMLError as error:
        raise BadInput(f"{source}: not YAML: {error}") from error


def _objects(document: Any) -> list[Any]:
    if document is None:
        return []
    if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
        items = document.get("items")
        if isinstance(items, list):
            return items
    return [document]


def without_nulls(value: Any) -> Any:
    """`value` without the keys whose value is null, at any depth."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _parse(data: bytes | str) -> JsonObject:
    import orjson

    try:
        obj = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"not JSON: {error}") from error
    if not isinstance(obj, dict):
        raise BadInput(f"expected a JSON object, got {type(obj).__name__}")
    return obj


def _current(obj: JsonObject) -> JsonObject:
    group, version = split_api_version(str(obj.get("apiVersion", "")))
    if group == KUEUE_GROUP and version != KUEUE_VERSION:
        from multikueue.api.conversion import convert

        return convert(obj, f"{KUEUE_GROUP}/{KUEUE_VERSION}")
    return obj


def _validate(model: type[Model], obj: JsonObject) -> Model:
    try:
        return model.model_validate(obj)
    except ValidationError as first:
        # In a manifest `conditions: null` means absent; checking that first would slow every read down.
        stripped = without_nulls(obj)
        if stripped == obj:
            raise _bad(first, obj) from first
    try:
        return model.model_validate(stripped)
    except ValidationError as error:
        raise _bad(error, obj) from error


def _bad(error: ValidationError, obj: JsonObject) -> BadInput:
    return BadInput("; ".join(f"{describe(obj)}: {line}" for line in problem_lines(error)))


def problem_lines(error: ValidationError) -> list[str]:
    """One `path: what is wrong` for each problem pydantic found."""
    problems = error.errors(include_url=False, include_context=False)
    return [f"{_path(problem['loc'])}: {problem['msg'].removeprefix('Value error, ')}" for problem in problems]


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "(root)"


def _yaml_loader() -> type[Any]:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
