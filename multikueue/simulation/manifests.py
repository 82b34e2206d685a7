# SPDX-License-Identifier: Apache-2.0
"""Manifests from files and folders, as objects of the one version that the engine reads.

Owns finding and reading: `---` streams, lists, folders, YAML and JSON. Kueue objects of any served version come out as
v1beta2. Promises that what cannot be read is one error that names file, line and object.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from multikueue.api.constants import CONFIG_GROUP as CONFIG_GROUP
from multikueue.api.conversion import convert
from multikueue.api.objects import JsonObject, describe
from multikueue.api.resource import KUEUE_GROUP, KUEUE_VERSION
from multikueue.core.errors import BadInput

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_KIND: Final = re.compile(r"^kind:\s*['\"]?(\w+)", re.MULTILINE)
_NAME: Final = re.compile(r"^\s+name:\s*['\"]?([\w.-]+)|[{,]\s*name:\s*['\"]?([\w.-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object and where it stands, as file and line."""

    obj: JsonObject
    source: str

    @property
    def kind(self) -> str:
        """The kind, empty when there is none."""
        return str(self.obj.get("kind") or "")

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return str(self.obj.get("apiVersion") or "").rpartition("/")[0]

    def __str__(self) -> str:
        metadata = self.obj.get("metadata")
        named = metadata if isinstance(metadata, dict) else {}
        parts = (named.get("namespace"), named.get("name") or named.get("generateName"))
        name = "/".join(str(part) for part in parts if part)
        return f"{self.source}: {self.kind or 'object'} {name or '(unnamed)'}"


def read(paths: Iterable[str]) -> list[Manifest]:
    """All objects, in the order of the paths and of the file names in a folder; `-` is standard input.

    Raises `BadInput`.
    """
    found: list[Manifest] = []
    for path in paths:
        if path == "-":
            found.extend(parse(sys.stdin.buffer.read(), source="standard input"))
            continue
        for file in _files(Path(path)):
            try:
                text = file.read_bytes()
            except OSError as error:
                raise BadInput(f"{file}: cannot read it: {error.strerror or error}") from error
            found.extend(parse(text, source=str(file)))
    return found


def parse(text: bytes, *, source: str) -> Iterator[Manifest]:
    """The objects of one text. Raises `BadInput` with `source` and line."""
    for found in _documents(text, source):
        for manifest in _objects(found):
            yield _current(manifest)


@dataclass(frozen=True, slots=True)
class _Found:
    """A value that should be an object; `lines` are those of its items."""

    value: object
    source: str
    line: int = 0
    lines: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source

    def item(self, index: int, value: object) -> _Found:
        line = self.lines[index] if index < len(self.lines) else self.line
        return _Found(value, self.source, line)


def _documents(text: bytes, source: str) -> Iterator[_Found]:
    if text.lstrip()[:1] == b"{":
        # A dump of a cluster is JSON more often than not, and JSON is read many times as fast.
        import orjson

        try:
            yield _Found(orjson.loads(text), source)
            return
        except orjson.JSONDecodeError:
            pass  # flow style of YAML looks the same at first; what is neither is told of by YAML
    loader = _loader()(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            value = loader.construct_document(node)
            if value is not None:
                yield _Found(value, source, node.start_mark.line + 1, tuple(_item_lines(node)))
    except yaml.YAMLError as error:
        raise BadInput(_not_yaml(error, text, source)) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{source}: not YAML: {error}") from error
    finally:
        loader.dispose()


@cache
def _loader() -> Any:
    # As Kubernetes reads YAML: times stay text.
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != _TIMESTAMP]
        for first, known in base.yaml_implicit_resolvers.items()
    }
    return type("_Loader", (base,), {"yaml_implicit_resolvers": resolvers})


def _item_lines(node: yaml.Node) -> Iterator[int]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "items" and isinstance(value, yaml.SequenceNode):
                yield from (item.start_mark.line + 1 for item in value.value)


def _not_yaml(error: yaml.YAMLError, text: bytes, source: str) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    if mark is None:
        return f"{source}: not YAML: {problem}"
    return f"{source}:{mark.line + 1}: {_around(text, mark.line)}not YAML: {problem}"


def _around(text: bytes, line: int) -> str:
    """Which object a line of broken text seems to belong to."""
    lines = text.decode(errors="replace").splitlines()
    start = max((number for number, content in enumerate(lines[:line]) if content.startswith("---")), default=0)
    end = next((line + n for n, content in enumerate(lines[line:]) if content.startswith("---")), len(lines))
    document = "\n".join(lines[start:end])
    kind, name = _KIND.search(document), _NAME.search(document)
    if kind is None:
        return ""
    return f"{kind[1]} {(name[1] or name[2]) if name else '(unnamed)'}: "


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
        if not files:
            raise BadInput(f"{path}: the folder holds no .yaml, .yml or .json file")
        return files
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    return [path]


def _objects(found: _Found) -> Iterator[Manifest]:
    document = found.value
    if not isinstance(document, dict):
        raise BadInput(f"{found.place}: a document is a {type(document).__name__}, not an object")
    kind, items = document.get("kind"), document.get("items")
    if isinstance(kind, str) and kind.endswith("List") and (items is None or isinstance(items, list)):
        for index, item in enumerate(items or ()):
            # Items of a list of one kind need not say what they are.
            typed = kind != "List" and isinstance(item, dict) and not item.get("kind")
            inherited = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
            yield from _objects(found.item(index, inherited | item if typed else item))
        return
    manifest = Manifest(document, found.place)
    if not isinstance(kind, str) or not kind or not document.get("apiVersion"):
        raise BadInput(f"{manifest}: an object needs apiVersion and kind")
    yield manifest


def _current(manifest: Manifest) -> Manifest:
    if manifest.group != KUEUE_GROUP:
        return manifest
    try:
        return Manifest(convert(manifest.obj, KUEUE_VERSION), manifest.source)
    except BadInput as error:
        named = f"{describe(manifest.obj)}: "  # which some errors begin with already
        raise BadInput(f"{manifest.source}: {named}{str(error).removeprefix(named)}") from error
