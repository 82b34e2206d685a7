# SPDX-License-Identifier: Apache-2.0
"""Declarations read from YAML, within limits; all mistakes of a document are reported at once, each with its path."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from multikueue.api.codec import problem_lines
from multikueue.api.objects import JsonObject
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.declaration import API_VERSION, JOB_KIND, JobKindDeclaration
from multikueue.jobs.declared.mistakes import DeclarationMistakes

MAX_DECLARATION: Final = 64 * 1024
"""In bytes of YAML."""
MAX_QUERIES: Final = 200
"""How many paths a declaration may have."""
_MESSAGES: Final = {
    "Extra inputs are not permitted": "unknown field",
    "Input should be": "expected",
    "Field required": "missing",
}


def read_declaration(text: bytes | str, *, origin: str) -> JobKindDeclaration:
    """The declaration in a YAML document. Raises `DeclarationMistakes`, which names `origin`."""
    import yaml

    from multikueue.api import yaml_text

    data = text.encode(errors="replace") if isinstance(text, str) else text
    if len(data) > MAX_DECLARATION:
        raise DeclarationMistakes(origin, (f"expected at most {MAX_DECLARATION} bytes, found {len(data)}",))
    try:
        document = yaml_text.load(data)
    except yaml.YAMLError as error:
        raise DeclarationMistakes(origin, (f"not YAML: {error}",)) from error
    if not isinstance(document, dict):
        raise DeclarationMistakes(origin, (f"expected a {JOB_KIND} of {API_VERSION}, found {excerpt(document)}",))
    return declaration_of(document, origin=origin)


def declaration_of(document: JsonObject, *, origin: str) -> JobKindDeclaration:
    """The declaration that a document is. Raises `DeclarationMistakes`."""
    queries = _queries(document)
    if queries > MAX_QUERIES:
        raise DeclarationMistakes(origin, (f"expected at most {MAX_QUERIES} paths, found {queries}",))
    try:
        return JobKindDeclaration.model_validate(document)
    except ValidationError as error:
        raise DeclarationMistakes(origin, _lines(error)) from error


def _lines(error: ValidationError) -> tuple[str, ...]:
    found = problem_lines(error)
    paths = [line.partition(": ")[0] for line in found]
    # pydantic counts only the entries without a mistake.
    return tuple(
        _plain(line)
        for line, path in zip(found, paths, strict=True)
        if "after validation" not in line or not any(each.startswith(f"{path}[") for each in paths)
    )


def _plain(line: str) -> str:
    """The message of pydantic in our terms."""
    for theirs, ours in _MESSAGES.items():
        line = line.replace(theirs, ours)
    return line


def _queries(value: object) -> int:
    """How many texts of the document are paths."""
    found, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        else:
            found += isinstance(each, str) and each.startswith("$")
    return found
