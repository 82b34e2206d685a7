# SPDX-License-Identifier: Apache-2.0
"""docs/reference/first-hour-before-and-after.md has for each line the terminal of then and of now, and its tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.sessions import COLUMNS, ROOT, Step, Terminal, steps_of, with_outputs

PAGE: Final = ROOT / "docs" / "reference" / "first-hour-before-and-after.md"
LINES: Final = 17
SECTIONS: Final = dict(
    re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
)
NOW_DIFFERENT: Final = {
    "1": (r"worker-1 +agent +True +drained", "Nothing was changed"),
    "2": ("error: timed out", 'not found in namespace "team-a": ServiceAccount "builder"'),
    "3": ("No such command 'logs'", "exit code 3"),
    "4": ("has not been told yet", "failed on worker-"),
    "5": ("no: Can't", "yes"),
    "6": ("exit code 1", "exit code 0"),
    "7": ("is forbidden", "Not shown, because you lack the permission"),
    "8": ("exit code 0", "exit code 2"),
    "9": (r"multikueue-admin", "node/node-1"),
    "10": ("No resources found|Created pod", "QueueNameMissing"),
    "11": ("Deactivated", "Next: delete the Job and create it again"),
    "12": ("large +Running", "QueueHeld"),
    "13": ("exit code 0", "exit code 1"),
    "14": ("No such option: --config", '"batch/jobb", "pods", "jobset" are not supported'),
    "15": ("The job that owned the workload is gone", "to delete it: kubectl delete workloads"),
    "16": ("exit code 1", "docs/reference/virtual-pods.md"),
    "17": ("<empty>", "The LocalQueue, in the same namespace"),
}
"""Of each line, what the terminal showed and shows; without line ends."""


def shown(section: str, session: str) -> str:
    return " ".join(" ".join(step.shown for step in steps_of(SECTIONS[section], session)).split())


def test_each_line_has_its_place() -> None:
    assert sorted(map(int, SECTIONS)) == list(range(1, LINES + 1))
    assert SECTIONS.keys() == NOW_DIFFERENT.keys()


@pytest.mark.parametrize(("section", "texts"), NOW_DIFFERENT.items(), ids=NOW_DIFFERENT)
def test_the_terminal_shows_what_it_did_not_show(section: str, texts: tuple[str, str]) -> None:
    before, after = texts
    assert re.search(before, shown(section, "before"))
    assert after in shown(section, "after")
    assert after not in shown(section, "before")


@pytest.mark.parametrize("section", SECTIONS)
def test_the_tests_of_each_line_exist(section: str) -> None:
    tests = re.findall(r"^- `(tests/[^`]+)::(test_\w+)`$", SECTIONS[section], re.MULTILINE)
    assert tests
    for file, test in tests:
        assert re.search(rf"def {test}\(", (ROOT / file).read_text(encoding="utf-8")), f"{file}::{test}"


def test_what_is_shown_now_has_80_columns() -> None:
    steps = steps_of(PAGE.read_text(encoding="utf-8"), "after")
    ours = [step for step in steps if "mkctl " in step.command and "kubectl " not in step.command]
    assert len(ours) > 15
    wide = [line for step in ours for line in step.shown.splitlines() if len(line) > COLUMNS]
    assert [line for line in wide if not line.lstrip().startswith(("kubectl ", "mkctl "))] == []


def test_the_sessions_of_a_page_are_apart(tmp_path: Path) -> None:
    page = "```console one\n$ echo $A\n```\n```console two\n$ A=two; echo $A\nold\n```\n```console\n$ true\n```\n"
    assert [len(steps_of(page, name)) for name in ("", "one", "two", "three")] == [1, 1, 1, 0]
    terminal = Terminal(tmp_path)
    written = with_outputs(page, [terminal.play(step) for step in steps_of(page, "two")], "two")
    assert steps_of(written, "two") == [Step(0, "A=two; echo $A", "two")]
    assert written == page.replace("\nold\n", "\ntwo\n")
