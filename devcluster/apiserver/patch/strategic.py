# SPDX-License-Identifier: Apache-2.0
"""Strategic merge patch: a merge patch that merges lists by key.

Owns the directives `$patch`, `$deleteFromPrimitiveList/<field>`, `$setElementOrder/<field>` and `$retainKeys`. The
arguments are not changed.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.patch.json_patch import PatchFailed, PatchMalformed
from devcluster.apiserver.schema.node import ANY, TypeNode

_DIRECTIVE: Final = "$patch"
_DELETE: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_RETAIN: Final = "$retainKeys"
_GO_KINDS: Final = {str: "string", int: "int64", float: "float64", bool: "bool"}


def strategic_patch(value: JsonObject, patch: JsonObject, kind: TypeNode) -> JsonObject:
    """The object with the patch applied. Raises `PatchFailed`."""
    directive = patch.get(_DIRECTIVE)
    if directive is not None:
        if directive == "replace":
            return {name: _clean(entry) for name, entry in patch.items() if name != _DIRECTIVE}
        if directive == "delete":
            return {}
        raise PatchFailed(f"unknown patch type: {directive} in map: {go_text(patch)}")
    retained = patch.get(_RETAIN)
    if retained is not None and not _retains(patch, retained):
        raise PatchMalformed("invalid patch format of retainKeys")
    found = dict(value) if retained is None else {k: v for k, v in value.items() if k in retained}
    for name, entry in patch.items():
        if name in (_DIRECTIVE, _RETAIN) or name.startswith(_ORDER):
            continue
        if name.startswith(_DELETE):
            field = name.removeprefix(_DELETE)
            removed = entry if isinstance(entry, list) else []
            if isinstance(found.get(field), list):
                found[field] = [item for item in found[field] if item not in removed]
            continue
        if entry is None:
            found.pop(name, None)
            continue
        field_kind = kind.field(name) or ANY
        was = found.get(name)
        if isinstance(entry, dict):
            if isinstance(was, dict):
                found[name] = strategic_patch(was, entry, field_kind)
            else:
                made = strategic_patch({}, entry, field_kind)
                if made or entry.get(_DIRECTIVE) != "delete":
                    found[name] = made
                else:
                    found.pop(name, None)
        elif isinstance(entry, list):
            order = patch.get(_ORDER + name)
            if isinstance(order, list):
                _check_order(entry, order, field_kind)
            found[name] = _list(was if isinstance(was, list) else [], entry, field_kind)
        else:
            found[name] = entry
    for name, order in patch.items():
        if name.startswith(_ORDER):
            field = name.removeprefix(_ORDER)
            if not isinstance(order, list):
                raise PatchFailed(f"expected a []interface {{}}, but received a {_GO_KINDS.get(type(order), 'map')}")
            if isinstance(found.get(field), list) and isinstance(order, list):
                found[field] = _ordered(found[field], order, value.get(field), kind.field(field) or ANY)
    return found


def _retains(patch: JsonObject, retained: JsonValue) -> bool:
    return isinstance(retained, list) and all(name in retained for name in patch if not name.startswith("$"))


def _check_order(patch: list[JsonValue], order: list[JsonValue], kind: TypeNode) -> None:
    """Check that the items of a patch have the order that it requires. Raises `PatchFailed`."""
    key = kind.merge_key

    def name(item: JsonValue) -> JsonValue:
        return item.get(key) if key and isinstance(item, dict) else item

    rest = iter([name(item) for item in order])
    kept = [item for item in patch if not (isinstance(item, dict) and _DIRECTIVE in item)]
    if not all(any(name(item) == wanted for wanted in rest) for item in kept):
        raise PatchFailed(
            f"The order in patch list:\n{go_text(patch)}\n doesn't match $setElementOrder list:\n{go_text(order)}\n"
        )


def go_text(value: JsonValue) -> str:
    """A value in the form of a real server's messages."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{go_text(value[name])}" for name in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_text, value)) + "]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _list(old: list[JsonValue], patch: list[JsonValue], kind: TypeNode) -> list[JsonValue]:
    replaces = [item for item in patch if isinstance(item, dict) and item.get(_DIRECTIVE) == "replace"]
    if not kind.merges:
        return [_clean(item) for item in patch if not (isinstance(item, dict) and set(item) == {_DIRECTIVE})]
    if replaces:
        return [_clean(item) for item in patch if set(item) != {_DIRECTIVE}]
    key = kind.merge_key
    if not key:
        added = [item for index, item in enumerate(patch) if item not in old and item not in patch[:index]]
        return _ordered(old + added, patch, old, kind)
    found = list(old)
    inner = kind.items or ANY
    for item in patch:
        if not isinstance(item, dict):
            raise PatchFailed(f"expected an object in a list merged by {key}")
        if key not in item:
            directive = item.get(_DIRECTIVE)
            if directive is None and not old:  # nothing to merge it with: validation finds what it lacks
                found.append(strategic_patch({}, item, inner))
                continue
            if directive not in (None, "delete", "replace"):
                raise PatchFailed(f"unknown patch type: {directive} in map: {go_text(item)}")
            raise PatchFailed(f"map: {go_text(item)} does not contain declared merge key: {key}")
        index = next((i for i, was in enumerate(found) if isinstance(was, dict) and was.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            found = [was for was in found if not (isinstance(was, dict) and was.get(key) == item[key])]
        elif index is None:
            found.append(strategic_patch({}, item, inner))
        else:
            found[index] = strategic_patch(found[index], item, inner)
    return _ordered(found, patch, old, kind)


def _ordered(items: list[JsonValue], order: list[JsonValue], was: JsonValue, kind: TypeNode) -> list[JsonValue]:
    """The items in the order of the patch; items that only the object has stay after their predecessor."""
    key = kind.merge_key

    def name(item: JsonValue) -> JsonValue:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [name(item) for item in order]
    listed = sorted((item for item in items if name(item) in wanted), key=lambda item: wanted.index(name(item)))
    before = [name(item) for item in was] if isinstance(was, list) else []
    others = [item for item in items if name(item) not in wanted]
    found: list[JsonValue] = []
    position = {id_: index for index, id_ in enumerate(before)} if all(_hashable(i) for i in before) else {}
    i = 0
    for item in listed:
        place = position.get(name(item), -1) if _hashable(name(item)) else -1
        while i < len(others) and place >= 0 and position.get(name(others[i]), len(before)) < place:
            found.append(others[i])
            i += 1
        found.append(item)
    return found + others[i:]


def _hashable(value: JsonValue) -> bool:
    return not isinstance(value, dict | list)


def _clean(value: JsonValue) -> JsonValue:
    """New content without directives."""
    if isinstance(value, dict):
        return {
            name: _clean(entry)
            for name, entry in value.items()
            if name not in (_DIRECTIVE, _RETAIN) and name[:1] != "$"
        }
    if isinstance(value, list):
        return [_clean(item) for item in value if not (isinstance(item, dict) and item.get(_DIRECTIVE) == "delete")]
    return value
