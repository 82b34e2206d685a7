# SPDX-License-Identifier: Apache-2.0
"""Typed values: the fields of a value, the difference of two, and the merge of one into another.

The base of server-side apply. Promises that equal parts are not walked: two equal subtrees are compared at C speed,
which makes a status patch cheap. Lists are atomic unless their type is set or map; maps are granular unless their type
is atomic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.patch import fieldset
from devcluster.apiserver.patch.fieldset import LEAF, FieldSet
from devcluster.apiserver.schema.node import ANY, TypeNode, item_key

_NOTHING: Final = object()
_CONTAINERS: Final = (dict, list)
_ROOT: Final = "."


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two values."""

    added: FieldSet | None
    modified: FieldSet | None
    removed: FieldSet | None

    @property
    def taken(self) -> FieldSet | None:
        """The fields that the manager of the change owns."""
        return fieldset.union(self.added, self.modified)


def element(kind: TypeNode, item: JsonValue) -> str:
    """The path element of an item of a set or of a map-like list."""
    if kind.list_type == "set":
        return "v:" + documents.dump(item).decode()
    if len(kind.keys) == 1 and isinstance(item, dict):
        value = item.get(kind.keys[0])
        if type(value) is str:
            return _single(kind.keys[0], value)
    key = item_key(kind, item) or ()
    return _named(zip(kind.keys, key, strict=False))


@lru_cache(maxsize=4096)
def _single(name: str, value: str) -> str:
    """The path element of one key; cached, since few keys occur again and again."""
    return _named([(name, value)])


def _named(pairs: Iterable[tuple[str, JsonValue]]) -> str:
    return "k:" + documents.dump({name: value for name, value in sorted(pairs) if value is not None}).decode()


def field_set(value: JsonValue, kind: TypeNode) -> FieldSet | None:
    """The fields of a value; an apply owns them."""
    if isinstance(value, dict) and not kind.atomic and _mapping(kind):
        found: FieldSet = {}
        for name, entry in value.items():
            field = kind.field(name) or ANY
            inner = field_set(entry, field)
            if (entry is None or entry == {} or name not in kind.properties) and not (
                inner is not None and fieldset.is_member(inner)
            ):
                inner = LEAF if inner is None else {_ROOT: LEAF, **inner}
            if inner is not None:
                found["f:" + name] = inner
        return found or None
    if isinstance(value, list) and _associative(kind):
        found = {}
        for item in value:
            inner = field_set(item, kind.items or ANY) if kind.list_type == "map" else None
            if inner is not None and not fieldset.is_member(inner):
                inner = {_ROOT: LEAF, **inner}
            found[element(kind, item)] = LEAF if inner is None else inner
        return found or None
    if value is None and (_mapping(kind) or _associative(kind)) and not kind.atomic:
        return None
    return LEAF


def _mapping(kind: TypeNode) -> bool:
    return bool(kind.properties) or kind.additional is not None or kind.preserve


def _associative(kind: TypeNode) -> bool:
    return kind.list_type != "atomic"


def compare(old: JsonValue, new: JsonValue, kind: TypeNode) -> Difference:
    """How `new` differs from `old`."""
    added: FieldSet = {}
    modified: FieldSet = {}
    removed: FieldSet = {}
    _compare(old, new, kind, added, modified, removed)
    return Difference(added or None, modified or None, removed or None)


def _compare(
    old: JsonValue, new: JsonValue, kind: TypeNode, added: FieldSet, modified: FieldSet, removed: FieldSet
) -> None:
    """Compare the children of one node; the node itself is the caller's."""
    if isinstance(old, dict) or isinstance(new, dict):
        before: JsonObject = old if isinstance(old, dict) else documents.EMPTY
        after: JsonObject = new if isinstance(new, dict) else documents.EMPTY
        for name, entry in after.items():
            was = before.get(name, _NOTHING)
            if was is entry or was == entry:
                continue
            if was is not _NOTHING and type(was) not in _CONTAINERS and type(entry) not in _CONTAINERS:
                modified["f:" + name] = LEAF
            else:
                _child("f:" + name, was, entry, kind.field(name) or ANY, added, modified, removed)
        for name, entry in before.items():
            if name not in after:
                _child("f:" + name, entry, _NOTHING, kind.field(name) or ANY, added, modified, removed)
    else:
        earlier = {element(kind, item): item for item in old} if isinstance(old, list) else {}
        later = {element(kind, item): item for item in new} if isinstance(new, list) else {}
        inner = kind.items or ANY
        for path, item in later.items():
            was = earlier.get(path, _NOTHING)
            if was is _NOTHING or was != item:
                _child(path, was, item, inner, added, modified, removed)
        for path, item in earlier.items():
            if path not in later:
                _child(path, item, _NOTHING, inner, added, modified, removed)


def _child(
    path: str, old: JsonValue, new: JsonValue, kind: TypeNode, added: FieldSet, modified: FieldSet, removed: FieldSet
) -> None:
    if type(old) is not type(new) and _changes_form(old, new):
        # The value changed its form: one field was removed, another one added.
        _child(path, old, _NOTHING, kind, {}, {}, removed)
        _child(path, _NOTHING, new, kind, added, modified, {})
        removed.pop(path) if removed.get(path) is LEAF else removed.get(path, {}).pop(_ROOT, None)
        modified[path] = LEAF
        added.pop(path) if added.get(path) is LEAF else added.get(path, {}).pop(_ROOT, None)
        return
    if _is_leaf(old, new, kind):
        if old is _NOTHING:
            added[path] = LEAF
        elif new is _NOTHING:
            removed[path] = LEAF
        else:
            modified[path] = LEAF
        return
    more: FieldSet = {}
    other: FieldSet = {}
    less: FieldSet = {}
    _compare(None if old is _NOTHING else old, None if new is _NOTHING else new, kind, more, other, less)
    if old is _NOTHING:
        added[path] = {_ROOT: LEAF, **more} if more else LEAF
    elif more:
        added[path] = more
    if other:
        modified[path] = other
    if new is _NOTHING:
        removed[path] = {_ROOT: LEAF, **less} if less else LEAF
    elif less:
        removed[path] = less


def _changes_form(old: JsonValue, new: JsonValue) -> bool:
    if old is _NOTHING or new is _NOTHING or not old or not new:
        return False
    return isinstance(old, dict | list) is not isinstance(new, dict | list) or (
        isinstance(old, dict) is not isinstance(new, dict)
    )


def _is_leaf(old: JsonValue, new: JsonValue, kind: TypeNode) -> bool:
    # Empty and absent have the same form, so `{}` against absent is a changed field.
    if not old or old is _NOTHING:
        if not new or new is _NOTHING:
            return True
        old = new
    if isinstance(old, dict):
        return kind.atomic or not _mapping(kind)
    return not (isinstance(old, list) and _associative(kind))


def merge(old: JsonValue, new: JsonValue, kind: TypeNode) -> JsonValue:
    """`new` merged into `old`; neither is changed, and unchanged parts are shared."""
    if isinstance(new, dict) and isinstance(old, dict) and not kind.atomic and _mapping(kind):
        found = dict(old)
        for name, entry in new.items():
            was = found.get(name, _NOTHING)
            found[name] = entry if was is _NOTHING else merge(was, entry, kind.field(name) or ANY)
        return found
    if isinstance(new, list) and isinstance(old, list) and _associative(kind):
        return _merge_lists(old, new, kind)
    return new


def _merge_lists(old: list[JsonValue], new: list[JsonValue], kind: TypeNode) -> list[JsonValue]:
    """Items of both in the order of `new`; the others keep their place among their neighbours."""
    before = {element(kind, item): item for item in old}
    after = {element(kind, item): item for item in new}
    left, right = list(before), list(after)
    inner = kind.items or ANY
    found: list[JsonValue] = []
    shared = [path for path in right if path in before]
    next_shared = 0
    i = j = 0
    while i < len(left) or j < len(right):
        if i < len(left) and j < len(right) and left[i] == right[j]:
            found.append(merge(before[left[i]], after[right[j]], inner))
            i, j, next_shared = i + 1, j + 1, next_shared + 1
        elif i < len(left) and left[i] not in after:
            found.append(before[left[i]])
            i += 1
        elif i < len(left) and (next_shared >= len(shared) or left[i] != shared[next_shared]):
            # Added at its place in `new`.
            i += 1
        elif j < len(right):
            path = right[j]
            if path in before:
                found.append(merge(before[path], after[path], inner))
                next_shared += 1
            else:
                found.append(after[path])
            j += 1
        else:
            i += 1
    return found


def remove(value: JsonValue, removed: FieldSet | None, kind: TypeNode) -> JsonValue:
    """The value without the members of a set and what is below them; the value itself is not changed.

    A map or list that becomes empty is null.
    """
    if removed is None or value in ({}, []):
        return value
    if isinstance(value, dict) and not kind.atomic:
        found = {}
        for name, entry in value.items():
            inner = removed.get("f:" + name)
            if inner is None:
                found[name] = entry
            elif not fieldset.is_member(inner):
                found[name] = remove(entry, inner, kind.field(name) or ANY)
        return found or None
    if isinstance(value, list) and _associative(kind):
        kept = []
        for item in value:
            inner = removed.get(element(kind, item))
            if inner is None:
                kept.append(item)
            elif not fieldset.is_member(inner):
                kept.append(remove(item, inner, kind.items or ANY))
        return kept or None
    return value


def with_parents(node: FieldSet | None, kind: TypeNode) -> FieldSet | None:
    """The set with all named fields on the path to a member added."""
    if not node:
        return node
    found = {}
    for path, child in node.items():
        if path == _ROOT or not child:
            found[path] = child
            continue
        if path[0] == "f":
            name = path[2:]
            inner = with_parents(child, kind.field(name) or ANY) or LEAF
            if name in kind.properties and _ROOT not in inner:
                inner = {_ROOT: LEAF, **inner}
        else:
            inner = with_parents(child, kind.items or ANY) or LEAF
        found[path] = inner
    return found
