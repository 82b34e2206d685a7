# SPDX-License-Identifier: Apache-2.0
"""Sets of field paths, in the form of `managedFields[].fieldsV1`.

A set is a tree of path elements (`f:name`, `k:{...}`, `v:...`); a node is a member of the set when it
is empty or holds `.`. An empty set is `None`, since `{}` is the set of the root alone. Sets are never changed in place.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from devcluster.apiserver.codec.documents import JsonObject

FieldSet: TypeAlias = JsonObject
"""A set that is not empty."""
LEAF: Final[FieldSet] = {}
"""The set of the root alone; as a child, a path that ends here."""
_ROOT: Final = "."
_MEMBER: Final[FieldSet] = {_ROOT: LEAF}


def _open(node: FieldSet) -> FieldSet:
    return node or _MEMBER


def _close(node: FieldSet) -> FieldSet | None:
    if not node:
        return None
    return LEAF if len(node) == 1 and _ROOT in node else node


def is_member(node: FieldSet) -> bool:
    """Whether the root of this tree is itself in the set."""
    return not node or _ROOT in node


def union(left: FieldSet | None, right: FieldSet | None) -> FieldSet | None:
    """The members of either set; `left` itself if it has all of them."""
    if left is None or left is right:
        return right
    if right is None:
        return left
    whole, found = _open(left), None
    for element, child in _open(right).items():
        other = whole.get(element)
        if other is None:
            merged = child
        elif element == _ROOT or not (other or child):
            continue
        else:
            merged = union(other, child) or LEAF
            if merged is other or not (merged or other):
                continue
        if found is None:
            found = dict(whole)
        found[element] = merged
    return left if found is None else _close(found)


def difference(left: FieldSet | None, right: FieldSet | None) -> FieldSet | None:
    """The members of `left` that are not in `right`."""
    if left is None or right is None:
        return left
    left, right = _open(left), _open(right)
    found = {}
    changed = False
    for element, child in left.items():
        other = right.get(element)
        if other is None:
            found[element] = child
        elif element == _ROOT:
            changed = True
        else:
            rest = difference(child, other)
            if rest is not None:
                found[element] = rest
            if rest is not child:
                changed = True
    return _close(found) if changed else _close(left)


def outside(left: FieldSet | None, right: FieldSet | None) -> FieldSet | None:
    """The members of `left` that are neither in `right` nor below a member of it."""
    if left is None or right is None:
        return left
    if is_member(right):
        return None
    found = {}
    for element, child in _open(left).items():
        rest = outside(child, right.get(element))
        if rest is not None:
            found[element] = rest
    return _close(found)


def intersection(left: FieldSet | None, right: FieldSet | None) -> FieldSet | None:
    """The members of both sets."""
    if left is None or right is None:
        return None
    left, right = _open(left), _open(right)
    found = {}
    for element, child in left.items():
        other = right.get(element)
        if other is None:
            continue
        if element == _ROOT:
            found[element] = LEAF
        else:
            both = intersection(child, other)
            if both is not None:
                found[element] = both
    return _close(found)


def paths(node: FieldSet | None, prefix: str = "") -> list[str]:
    """The members as text such as `.spec.containers[name="c"].image`, each level before deeper ones."""
    if node is None:
        return []
    children = [(prefix + readable(element), node[element]) for element in sorted(node, key=_order) if element != _ROOT]
    found = [path for path, child in children if is_member(child)]
    for path, child in children:
        found += paths(child, path)
    return found


def readable(element: str) -> str:
    """One path element as text."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        from devcluster.apiserver.codec import documents

        keys = documents.load_object(rest.encode())
        return "[" + ",".join(f"{name}={documents.dump(keys[name]).decode()}" for name in sorted(keys)) + "]"
    if kind == "v":
        return f"[={rest}]"
    return f"[{rest}]"


_RANK: Final = {".": 0, "f": 1, "k": 2, "v": 3, "i": 4}


def _order(element: str) -> tuple[int, str]:
    return _RANK[element[0]], element


def ordered(node: FieldSet) -> FieldSet:
    """The set with its elements in the order of a real server."""
    return {element: ordered(node[element]) for element in sorted(node, key=_order)}
