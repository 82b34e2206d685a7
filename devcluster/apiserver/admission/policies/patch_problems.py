# SPDX-License-Identifier: Apache-2.0
"""JSON patches of policies: one operation, and why it does not apply in a real server's words."""

from __future__ import annotations

from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.patch import json_patch
from devcluster.apiserver.patch.json_patch import PatchFailed

_MISSING = "missing value"
_BAD_INDEX = "invalid index referenced"


class PatchTestFailed(Exception):
    """A `test` that does not hold; the whole patch is void, which is no failure."""

    __test__ = False


def operate(value: JsonValue, operation: JsonObject) -> JsonValue:
    """The value after an operation. Raises `PatchTestFailed`, or `ValueError` with the reason."""
    problem = _problem(value, operation)
    if problem is not None:
        raise ValueError(problem)
    try:
        return json_patch.json_patch(value, [operation])
    except PatchFailed as error:
        if operation["op"] == "test":
            raise PatchTestFailed from error
        raise ValueError(str(error)) from error


def _problem(value: JsonValue, operation: JsonObject) -> str | None:
    name, path = operation["op"], operation["path"]
    match name:
        case "add":
            place = f'doc is missing path: "{path}"'
            return _unreached(value, path, f"add operation does not apply: {place}") or _unset(
                value, path, f"error in add for path: '{path}'"
            )
        case "remove":
            place = f'doc is missing path: "{path}"'
            return _unreached(value, path, f"remove operation does not apply: {place}") or _unheld(
                value, path, f"error in remove for path: '{path}'", key_must_exist=True
            )
        case "replace":
            if path == "":
                return None
            wrong = _unreached(value, path, f"replace operation does not apply: doc is missing path: {path}")
            absent = _unheld(value, path, "", key_must_exist=False)
            missing = f"replace operation does not apply: doc is missing key: {path}: {_MISSING}"
            return wrong or (missing if absent is not None else None)
        case "test":
            if path == "":
                return None
            return _unreached(value, path, f"test operation does not apply: is missing path: {path}") or _unheld(
                value, path, f"error in test for path: '{path}'", key_must_exist=False
            )
        case "move" | "copy":
            return _unmoved(value, name, operation)
    return f"Unexpected kind: {name}"


def _unmoved(value: JsonValue, name: str, operation: JsonObject) -> str | None:
    path, source = operation["path"], operation.get("from")
    if source is None:
        return f"{name} operation failed to decode from: operation, missing from field: {_MISSING}"
    wrong = _unreached(value, source, f"{name} operation does not apply: doc is missing from path: {source}")
    if wrong is not None:
        return wrong
    if name == "move":
        key = source.rpartition("/")[2]
        wrong = _unheld(value, source, f"error in move for path: '{key}'", key_must_exist=True)
        if wrong is not None:
            return wrong
        value = json_patch.json_patch(value, [{"op": "remove", "path": source}])
    else:
        wrong = _unheld(value, source, f"error in copy for from: '{source}'", key_must_exist=False)
        if wrong is not None:
            return wrong
    failed = f"error in move for path: '{path}'" if name == "move" else "error while adding value during copy"
    place = f"{name} operation does not apply: doc is missing destination path: {path}"
    return _unreached(value, path, place) or _unset(value, path, failed)


def _container(value: JsonValue, path: str) -> JsonValue:
    """The map or list that holds the last part of a path; None if there is none."""
    _, *parts = path.split("/")
    if not parts:
        return None
    for part in map(_decoded, parts[:-1]):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list):
            index = _index(part)
            value = value[index] if index is not None and -len(value) <= index < len(value) else None
        if not isinstance(value, dict | list):
            return None
    return value


def _unreached(value: JsonValue, path: str, text: str) -> str | None:
    return None if _container(value, path) is not None else f"{text}: {_MISSING}"


def _unset(value: JsonValue, path: str, text: str) -> str | None:
    """Why a value cannot be added at a path."""
    holder, key = _container(value, path), _decoded(path.rpartition("/")[2])
    if not isinstance(holder, list) or key == "-":
        return None
    index = _index(key)
    if index is None:
        return f"{text}: value was not a proper array index: '{key}': {_unparsed(key)}"
    if not -len(holder) - 1 <= index <= len(holder):
        return f"{text}: Unable to access invalid index: {index}: {_BAD_INDEX}"
    return None


def _unheld(value: JsonValue, path: str, text: str, *, key_must_exist: bool) -> str | None:
    """Why there is no value at a path."""
    holder, key = _container(value, path), _decoded(path.rpartition("/")[2])
    if isinstance(holder, dict):
        if key_must_exist and key not in holder:
            return f"{text}: Unable to remove nonexistent key: {key}: {_MISSING}"
        return None
    assert isinstance(holder, list) or holder is None
    index, length = _index(key), len(holder or ())
    if index is None:
        return f"{text}: {_unparsed(key)}"
    if not -length <= index < length:
        return f"{text}: Unable to access invalid index: {index}: {_BAD_INDEX}"
    return None


def _index(part: str) -> int | None:
    digits = part[1:] if part[:1] in ("+", "-") else part
    return int(part) if digits.isascii() and digits.isdigit() else None


def _unparsed(text: str) -> str:
    return f'strconv.Atoi: parsing "{text}": invalid syntax'


def _decoded(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
