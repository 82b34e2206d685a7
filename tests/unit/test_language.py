# SPDX-License-Identifier: Apache-2.0
"""Messages, help texts and docs use the terms of Kubernetes and Kueue, not the project's former private words.

Checked are the strings of product code with more than one word (without docstrings), every `--help` of `mkctl`, and the
docs without `docs/spec` and `docs/adr`. Text in backticks is skipped: public names keep their spelling. `ALLOWED` has
the uses in the ordinary meaning.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from typer.testing import CliRunner

from multikueue.cli import main
from multikueue.cli.cluster import commands

ROOT: Final = Path(__file__).parents[2]
CODE: Final = ("multikueue", "manager", "worker_agent", "devcluster")
"""Folders of product code that are read."""
DOCS: Final = ("README.md", "CONTRIBUTING.md", "docs")
"""Pages, and folders of pages, that are read."""
NOT_READ: Final = (
    "docs/spec/",
    "docs/adr/",
    "docs/reference/scenarios.md",
    "docs/reference/first-hour-before-and-after.md",
)
"""Written elsewhere: the reference, decisions as they were made, names of tests, and what a first version printed."""

WORDS: Final = {
    "belief": r"belie(?:fs?|ves?|ved|ving)",
    "carrier": r"carriers?",
    "copy": r"cop(?:y|ies)",
    "footprint": r"footprints?",
    "goes on": r"(?:go|goes|going|went) on",
    "heard": r"(?:hears?|heard|unheard)",
    "heed": r"heed(?:s|ed|ing)?",
    "holds good": r"holds? good",
    "knowledge": r"knowledge",
    "lineage": r"lineages?",
    "lives": r"lives",
    "mirror": r"mirror(?:s|ed|ing)?",
    "nobody": r"(?:no|some)body",
    "occasion": r"occasions?",
    "outbox": r"outbox(?:es)?",
    "outlook": r"outlooks?",
    "park": r"(?:un)?park(?:s|ed|ing)?",
    "promise": r"promis(?:es?|ed|ing)",
    "put back": r"puts? back",
    "retell": r"retell(?:s|ing)?|retold",
    "rhythm": r"rhythms?",
    "room": r"rooms?",
    "said": r"said",
    "set aside": r"sets? aside",
    "standing": r"standing",
    "stands": r"stands?|stood",
    "story": r"stor(?:y|ies)",
    "tale": r"tales?",
    "tell": r"tells?|told|telling",
    "wish": r"wish(?:es|ed)?",
    "word": r"words?",
    "world": r"worlds?",
}
_WORD: Final = re.compile("|".join(rf"(?P<w{index}>\b(?:{each})\b)" for index, each in enumerate(WORDS.values())), re.I)
_QUOTED: Final = re.compile(r"`[^`]*`|\]\([^)]*\)")


class Use(NamedTuple):
    """A word in a line of a file."""

    file: str
    line: int
    word: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word}: {self.text}"


ALLOWED: Final = frozenset(
    {
        ("CONTRIBUTING.md", "Do not copy from other projects"),
        # the term of Kubernetes
        ("docs/reference/embedded-controllers.md", "mirroring of Endpoints without a selector"),
        # the operation of a JSON patch, in a real server's errors
        ("devcluster/apiserver/admission/policies/patch_problems.py", "error in copy for from: '"),
        ("devcluster/apiserver/admission/policies/patch_problems.py", "error while adding value during copy"),
        # the former name of a command, for one release
        ("multikueue/cli/inspect/timeline.py", "mkctl story: warning: this command is now called"),
        ("docs/reference/messages.md", "mkctl story: warning: this command is now called"),
    }
)
"""Uses in the ordinary meaning: the file, and a part of the line."""


def uses_in(file: str, lines: Iterator[tuple[int, str]]) -> Iterator[Use]:
    """The private words in these numbered lines."""
    names = list(WORDS)
    for number, line in lines:
        for found in _WORD.finditer(_QUOTED.sub("", line)):
            index = next(at for at, text in enumerate(found.groups()) if text is not None)
            yield Use(file, number, names[index], line.strip())


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module that have more than one word and are no docstrings, each with its line."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        if " " in node.value.strip():
            yield node.lineno, node.value


def pages() -> list[Path]:
    """The Markdown files that are read."""
    found = [page for each in DOCS for page in ([ROOT / each] if each.endswith(".md") else (ROOT / each).rglob("*.md"))]
    return sorted(page for page in found if not str(page.relative_to(ROOT)).startswith(NOT_READ))


def written() -> Iterator[Use]:
    """All private words in code and docs."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from uses_in(str(path.relative_to(ROOT)), texts_of(path))
    for page in pages():
        lines = enumerate(page.read_text().splitlines(), start=1)
        yield from uses_in(str(page.relative_to(ROOT)), lines)


def allowed(use: Use) -> bool:
    """Whether the word has its ordinary meaning there."""
    return any(use.file == file and part in use.text for file, part in ALLOWED)


def test_messages_and_docs_have_no_private_words() -> None:
    found = [str(use) for use in written() if not allowed(use)]
    assert not found, "\n".join(found)


def test_every_allowed_use_is_there() -> None:
    uses = list(written())
    unused = [entry for entry in ALLOWED if not any(use.file == entry[0] and entry[1] in use.text for use in uses)]
    assert unused == []


def help_of(*arguments: str) -> str:
    """What a command of `mkctl` prints for `--help`."""
    if not arguments or not main.COMMANDS[arguments[0]].plain:
        return CliRunner().invoke(main.build(arguments), [*arguments, "--help"]).stdout
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main.COMMANDS[arguments[0]].load()([*arguments[1:], "--help"])
    return printed.getvalue()


COMMANDS: Final[list[tuple[str, ...]]] = [
    (),
    *((name,) for name, command in main.COMMANDS.items() if not command.hidden),
    *(
        ("cluster", str(each.name or getattr(each.callback, "__name__", "")))
        for each in commands.app.registered_commands
    ),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "mkctl")
def test_help_has_no_private_words_and_describes_every_option(command: tuple[str, ...]) -> None:
    text = help_of(*command)
    assert "--help" in text
    assert [str(use) for use in uses_in("--help", enumerate(text.splitlines(), start=1))] == []


def test_the_words_are_found_where_they_are() -> None:
    lines = iter(
        [(1, "its room is told"), (2, "`story` stays"), (3, "WISHES and words"), (4, "roomy, wordless, crossword")]
    )
    assert [(use.line, use.word) for use in uses_in("f", lines)] == [
        (1, "room"),
        (1, "tell"),
        (3, "wish"),
        (3, "word"),
    ]
