# SPDX-License-Identifier: Apache-2.0
"""Manifests from files and folders, as objects of the one version that the engine reads.

Owns finding and reading: `---` streams, lists, folders, YAML and JSON. Kueue objects of any served version come out as
v1beta2. Promises that what cannot be read is one error that names the file and the place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from multikueue.api.conversion import convert
from multikueue.api.objects import JsonObject
from multikueue.api.resource import KUEUE_GROUP, KUEUE_VERSION
from multikueue.core.errors import BadInput

CONFIG_GROUP: Final = "config.kueue.x-k8s.io"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object and where it stands."""

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
        metadata = self.obj.get("metadata") or {}
        name = "/".join(str(part) for part in (metadata.get("namespace"), metadata.get("name")) if part)
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


def parse(text: bytes | str, *, source: str) -> Iterator[Manifest]:
    """The objects of one text. Raises `BadInput` with `source` and line."""
    try:
        for document in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if document is not None:
                yield from _objects(document, source)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark is not None else ""
        raise BadInput(f"{source}:{where} not YAML: {getattr(error, 'problem', None) or error}") from error


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
        if not files:
            raise BadInput(f"{path}: the folder holds no .yaml, .yml or .json file")
        return files
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    return [path]


def _objects(document: object, source: str) -> Iterator[Manifest]:
    if not isinstance(document, dict):
        raise BadInput(f"{source}: a document is a {type(document).__name__}, not an object")
    kind = document.get("kind")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(item, source)
        return
    manifest = Manifest(document, source)
    if not kind or not document.get("apiVersion"):
        raise BadInput(f"{manifest}: an object needs apiVersion and kind")
    metadata = document.get("metadata")
    if manifest.group == CONFIG_GROUP:
        yield manifest  # a Configuration is a file of the manager's and has no name
        return
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise BadInput(f"{manifest}: an object needs metadata.name")
    if manifest.group == KUEUE_GROUP:
        try:
            manifest = Manifest(convert(document, KUEUE_VERSION), source)
        except BadInput as error:
            raise BadInput(f"{manifest}: {error}") from error
    yield manifest
