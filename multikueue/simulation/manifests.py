# SPDX-License-Identifier: Apache-2.0
"""Reads manifests from files and folders, as objects of the one version that the engine reads.

Owns streams with `---`, lists, folders, YAML and JSON. Kueue objects of any served version are converted to v1beta2.
Whatever cannot be read is reported with file, line and object, and everything else is read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from multikueue.api import yaml_text
from multikueue.api.constants import CONFIG_GROUP as CONFIG_GROUP
from multikueue.api.conversion import convert
from multikueue.api.objects import JsonObject, describe
from multikueue.api.resource import KUEUE_GROUP, KUEUE_VERSION
from multikueue.api.yaml_text import YamlBeyondBounds
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_MAX_BYTES: Final = 512 * 1024 * 1024  # a dump of 100,000 Workloads; YAML has another limit
_DOCUMENT: Final = re.compile(rb"^---(?=\s|$)", re.MULTILINE)
# A tag may name a type that its text does not have.
_UNREADABLE: Final = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError)
_SEARCHED_BYTES: Final = 64 * 1024  # bytes of a broken document, for its kind and name
_KIND: Final = re.compile(r"^kind:\s*['\"]?(\w+)", re.MULTILINE)
_NAME: Final = re.compile(r"^\s+name:\s*['\"]?([\w.-]+)|[{,]\s*name:\s*['\"]?([\w.-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object, and its file and line."""

    obj: JsonObject
    source: str

    @property
    def kind(self) -> str:
        """The kind; empty if absent."""
        return str(self.obj.get("kind") or "")

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return str(self.obj.get("apiVersion") or "").rpartition("/")[0]

    def __str__(self) -> str:
        metadata = self.obj.get("metadata")
        named = metadata if isinstance(metadata, dict) else {}
        parts = (named.get("namespace"), named.get("name") or named.get("generateName"))
        name = "/".join(_short(part) for part in parts if part)
        return f"{self.source}: {_short(self.kind) or 'object'} {name or '(unnamed)'}"


def _short(value: object) -> str:
    return excerpt(str(value) if isinstance(value, str) else value, 300).strip('"')


@dataclass(frozen=True, slots=True)
class Unusable:
    """An object that is not simulated because it cannot be read or a hub would reject it, and why."""

    place: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place}: {'; '.join(self.reasons)}"


@dataclass(slots=True)
class Manifests:
    """The objects that were read, in order, and those that could not be."""

    found: list[Manifest] = field(default_factory=list)
    unusable: list[Unusable] = field(default_factory=list)


def read(paths: Iterable[str]) -> Manifests:
    """All objects, in the order of the paths and of the file names in a folder; `-` is standard input.

    Raises `BadInput` for a path that does not exist or has no manifests.
    """
    everything = Manifests()
    for path in paths:
        for file in [None] if path == "-" else _files(Path(path)):
            source = "standard input" if file is None else str(file)
            try:
                text = _bytes(file)
            except OSError as error:
                raise BadInput(f"{source}: cannot read it: {error.strerror or error}") from error
            if len(text) > _MAX_BYTES:
                problem = f"larger than the limit of {_MAX_BYTES // 1024**2} MiB"
                everything.unusable.append(Unusable(source, (problem,)))
                continue
            given = parse(text, source=source)
            everything.found += given.found
            everything.unusable += given.unusable
    return everything


def _bytes(file: Path | None) -> bytes:
    """The text, up to one byte more than the limit."""
    if file is None:
        return sys.stdin.buffer.read(_MAX_BYTES + 1)
    with file.open("rb") as stream:
        return stream.read(_MAX_BYTES + 1)


def parse(text: bytes, *, source: str) -> Manifests:
    """The objects of one text."""
    given = Manifests()
    for found in _documents(text, source):
        for each in [found] if isinstance(found, Unusable) else _objects(found):
            usable = each if isinstance(each, Unusable) else _current(each)
            if isinstance(usable, Unusable):
                given.unusable.append(usable)
            else:
                given.found.append(usable)
    return given


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
        if not self.line:
            return _Found(value, f"{self.source} items[{index}]")
        return _Found(value, self.source, self.lines[index] if index < len(self.lines) else self.line)


def _documents(text: bytes, source: str) -> Iterator[_Found | Unusable]:
    if text.lstrip()[:1] == b"{":
        # A dump of a cluster is usually JSON, which is read many times as fast.
        import orjson

        try:
            yield _Found(orjson.loads(text), source)
            return
        except orjson.JSONDecodeError:
            pass  # may be YAML in flow style; the YAML parser reports text that is neither
    for start, document in _split(text):
        yield from _of_document(document, source, start)


def _split(text: bytes) -> Iterator[tuple[int, bytes]]:
    """The documents, each with the number of lines before it: a broken one does not affect the others."""
    begin = line = 0
    for found in _DOCUMENT.finditer(text):
        lines = text[begin : found.start()].splitlines()
        if all(not line.strip() or line.lstrip()[:1] in (b"%", b"#") for line in lines):
            continue  # directives and comments belong to the document that follows
        yield line, text[begin : found.start()]
        line += text.count(b"\n", begin, found.start())
        begin = found.start()
    yield line, text[begin:]


def _of_document(text: bytes, source: str, start: int) -> Iterator[_Found | Unusable]:
    try:
        loader = yaml_text.loader(text)
    except _UNREADABLE as error:
        yield _not_yaml(error, text, source, start)
        return
    try:
        while loader.check_node():
            node = loader.get_node()
            value = loader.construct_document(node)
            if value is not None:
                yield _Found(value, source, start + node.start_mark.line + 1, tuple(_item_lines(node, start)))
    except _UNREADABLE as error:
        yield _not_yaml(error, text, source, start)
    finally:
        loader.dispose()


def _item_lines(node: yaml.Node, start: int) -> Iterator[int]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "items" and isinstance(value, yaml.SequenceNode):
                yield from (start + item.start_mark.line + 1 for item in value.value)


def _not_yaml(error: Exception, text: bytes, source: str, start: int) -> Unusable:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    reason = f"not YAML: {excerpt(str(problem), 200)[1:-1]}"
    if isinstance(error, YamlBeyondBounds):
        reason = str(problem)
    if mark is None:
        return Unusable(source, (reason,))
    return Unusable(f"{source}:{start + mark.line + 1}{_around(text)}", (reason,))


def _around(text: bytes) -> str:
    """The kind and name that a broken document seems to have."""
    document = text[:_SEARCHED_BYTES].decode(errors="replace")
    kind, name = _KIND.search(document), _NAME.search(document)
    if kind is None:
        return ""
    return f": {kind[1]} {(name[1] or name[2]) if name else '(unnamed)'}"


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
        if not files:
            raise BadInput(f"{path}: the folder holds no .yaml, .yml or .json file")
        return files
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    return [path]


def _objects(found: _Found) -> Iterator[Manifest | Unusable]:
    document = found.value
    if not isinstance(document, dict):
        yield Unusable(found.place, (f"a document is a {type(document).__name__}, not an object",))
        return
    kind, items = document.get("kind"), document.get("items")
    if isinstance(kind, str) and kind.endswith("List") and (items is None or isinstance(items, list)):
        for index, item in enumerate(items or ()):
            # Items of a list of one kind may omit apiVersion and kind.
            typed = kind != "List" and isinstance(item, dict) and not item.get("kind")
            inherited = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
            yield from _objects(found.item(index, inherited | item if typed else item))
        return
    manifest = Manifest(document, found.place)
    version = document.get("apiVersion")
    if not isinstance(kind, str) or not kind or not isinstance(version, str) or not version:
        yield Unusable(str(manifest), ("an object needs apiVersion and kind",))
        return
    yield manifest


def _current(manifest: Manifest) -> Manifest | Unusable:
    if manifest.group != KUEUE_GROUP:
        return manifest
    try:
        return Manifest(convert(manifest.obj, KUEUE_VERSION), manifest.source)
    except BadInput as error:
        return Unusable(str(manifest), (str(error).removeprefix(f"{describe(manifest.obj)}: "),))
    except WRONG_SHAPE as error:
        return Unusable(str(manifest), (wrong_shape(manifest, error),))


def wrong_shape(manifest: Manifest, error: Exception) -> str:
    """A message for one of Python's built-in errors, whose text alone is not helpful."""
    return f"not the shape of a {manifest.kind}: {excerpt(repr(error), 200)[1:-1]}"


WRONG_SHAPE: Final = (TypeError, KeyError, AttributeError, ValueError, LookupError, ArithmeticError, RecursionError)
"""The errors of reading a value of the wrong shape."""
