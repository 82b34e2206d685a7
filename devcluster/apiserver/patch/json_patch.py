# SPDX-License-Identifier: Apache-2.0
"""JSON patch (RFC 6902) and merge patch (RFC 7386).

The arguments are not changed: changed containers are copied on the way down, the rest is shared.
"""

from __future__ import annotations

from devcluster.apiserver.codec.documents import JsonValue


class PatchFailed(Exception):
    """An operation that cannot be applied to the document."""


class PatchMalformed(PatchFailed):
    """A patch that is invalid for any document."""


def merge_patch(value: JsonValue, patch: JsonValue) -> JsonValue:
    """The value with a merge patch applied: null removes, objects merge, the rest replaces."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for name, entry in patch.items():
        if entry is None:
            found.pop(name, None)
        elif isinstance(entry, dict):
            found[name] = merge_patch(found.get(name), entry)
        else:
            found[name] = entry
    return found


def json_patch(value: JsonValue, operations: JsonValue) -> JsonValue:
    """The value after all operations. Raises `PatchFailed`."""
    if not isinstance(operations, list):
        raise PatchFailed("a JSON patch is a list of operations")
    for operation in operations:
        if not isinstance(operation, dict):
            raise PatchFailed("an operation is an object")
        value = _operate(value, operation)
    return value


def _operate(value: JsonValue, operation: dict[str, JsonValue]) -> JsonValue:
    name, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str):
        raise PatchFailed(f"operation {name} has no path")
    match name:
        case "add":
            return _set(value, _split(path), _wanted(path, operation), insert=True)
        case "replace":
            return _set(value, _split(path), _wanted(path, operation), insert=False)
        case "remove":
            return _remove(value, _split(path))
        case "move" | "copy":
            source = operation.get("from")
            if not isinstance(source, str):
                raise PatchFailed(f"operation {name} has no from")
            try:
                found = _find(value, _split(source))
            except PatchFailed:
                if name == "move" or not isinstance(_find(value, _split(source)[:-1]), dict):
                    raise
                found = None  # a real server copies an absent value, too
            if name == "move":
                value = _remove(value, _split(source))
            return _set(value, _split(path), found, insert=True)
        case "test":
            try:
                found = _find(value, _split(path))
            except PatchFailed:
                found = None
            if not _same(found, operation.get("value")):
                raise PatchFailed(f"testing value {path} failed")
            return value
    raise PatchFailed(f"unexpected kind: {name}")


def _wanted(path: str, operation: dict[str, JsonValue]) -> JsonValue:
    if path == "" and operation.get("op") == "add":
        raise PatchFailed("nothing can be added to the whole document")
    return operation.get("value")


def _same(left: JsonValue, right: JsonValue) -> bool:
    """Whether two values have the same text: 2 is not 2.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(entry, right[name]) for name, entry in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _split(path: str) -> list[str]:
    if path == "":
        return []
    # The part before the first slash is ignored, as on a real server.
    path = path[path.find("/") :] if "/" in path else f"/{path}"
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _index(part: str, length: int, *, insert: bool) -> int:
    if insert and part == "-":
        return length
    if not part.isdigit() and not (part.startswith("-") and part[1:].isdigit()):
        raise PatchFailed(f"{part!r} is not an index")
    index = int(part)
    if index < 0:
        index += length + (1 if insert else 0)
    if index < 0 or index > length or (index == length and not insert):
        raise PatchFailed(f"index {part} is out of bounds")
    return index


def _find(value: JsonValue, parts: list[str]) -> JsonValue:
    for part in parts:
        if isinstance(value, dict):
            if part not in value:
                raise PatchFailed(f"{part!r} is missing")
            value = value[part]
        elif isinstance(value, list):
            value = value[_index(part, len(value), insert=False)]
        else:
            raise PatchFailed(f"{part!r} is not in a container")
    return value


def _set(value: JsonValue, parts: list[str], new: JsonValue, *, insert: bool) -> JsonValue:
    if not parts:
        return new
    head, rest = parts[0], parts[1:]
    if isinstance(value, dict):
        if rest and head not in value:
            raise PatchFailed(f"{head!r} is missing")
        return {**value, head: _set(value.get(head), rest, new, insert=insert)}
    if isinstance(value, list):
        found = list(value)
        index = _index(head, len(found), insert=insert and not rest)
        if rest:
            found[index] = _set(found[index], rest, new, insert=insert)
        elif insert:
            found.insert(index, new)
        else:
            found[index] = new
        return found
    raise PatchFailed(f"{head!r} is not in a container")


def _remove(value: JsonValue, parts: list[str]) -> JsonValue:
    if not parts:
        raise PatchFailed("the whole document cannot be removed")
    head, rest = parts[0], parts[1:]
    if isinstance(value, dict):
        if head not in value:
            raise PatchFailed(f"{head!r} is missing")
        found = dict(value)
        if rest:
            found[head] = _remove(found[head], rest)
        else:
            del found[head]
        return found
    if isinstance(value, list):
        items = list(value)
        index = _index(head, len(items), insert=False)
        if rest:
            items[index] = _remove(items[index], rest)
        else:
            del items[index]
        return items
    raise PatchFailed(f"{head!r} is not in a container")
