# SPDX-License-Identifier: Apache-2.0
"""docs/reference/messages.md has every message that a user can meet, and no other."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import gen_messages
from hack.gen_messages import ROOT, problems
from hack.message_templates import CALL_FOLDERS, MESSAGE_MODULES, RULE_FOLDER, Template, collect, normal

EMITS = re.compile(r"recorder\.event\(|(?<!class )\b(?:Obstacle|Deny)\(")
PLACES = re.compile(r"\]\(((?:\.\./|[a-z])[^)#]*)")


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(gen_messages.TABLE.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def messages() -> list[Template]:
    """Those of the code."""
    return collect()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The folders that have messages, to change them."""
    return copy_source(tmp_path)


def copy_source(root: Path) -> Path:
    for name in ("multikueue", "manager", "worker_agent", "devcluster"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "data", "schemas"))
    return root


def test_every_message_of_the_code_has_an_entry_and_every_entry_a_message(
    table: dict[str, Any], messages: list[Template]
) -> None:
    assert list(problems(table, messages)) == []


def test_the_page_is_what_the_table_makes_of_it(table: dict[str, Any]) -> None:
    assert gen_messages.PAGE.read_text(encoding="utf-8") == gen_messages.page(table)


def test_every_entry_has_a_cause_and_a_next_step(table: dict[str, Any]) -> None:
    entries = [entry for section in table["sections"] for entry in section["entries"]]
    assert len(entries) > 200
    assert [entry["messages"] for entry in entries if not entry["cause"].endswith(".")] == []
    assert [entry["messages"] for entry in entries if not entry["next"].endswith(".")] == []


def test_links_of_the_page_lead_to_files(table: dict[str, Any]) -> None:
    folder = gen_messages.PAGE.parent
    links = PLACES.findall(gen_messages.page(table))
    assert "../operations/runbook.md" in links
    assert [link for link in links if not (folder / link).exists()] == []


NEW = (
    pytest.param(
        "multikueue/engine/messages.py",
        'def a_new_one(queue: str) -> str:\n    return f"queue {queue} is on fire"\n',
        "queue <queue> is on fire",
        id="that a module of messages returns",
    ),
    pytest.param(
        "multikueue/cli/local/down.py",
        'def refuse(name: str) -> None:\n    raise BadInput(f"federation {name} is on fire")\n',
        "federation <name> is on fire",
        id="that mkctl raises",
    ),
    pytest.param(
        "multikueue/cli/local/up.py",
        'def refuse(hot: bool) -> None:\n    why = "it is on fire" if hot else ""\n    fail("up", why)\n',
        "it is on fire",
        id="that a local variable has",
    ),
    pytest.param(
        "multikueue/cli/local/demo.py",
        'def hot(names: list[str]) -> None:\n    raise BadInput("\\n".join(["a list is on fire", *names]))\n',
        "a list is on fire",
        id="that is a line of several",
    ),
    pytest.param(
        "multikueue/api/validation/job.py",
        'def hot(path: str) -> FieldError:\n    return invalid(path, 1, "must not be on fire")\n',
        "must not be on fire",
        id="that a webhook refuses with",
    ),
    pytest.param(
        "multikueue/api/workload.py",
        'HOT = CelRule("self.cold", "should never be on fire")\n',
        "should never be on fire",
        id="that a rule of a schema has",
    ),
)


@pytest.fixture(scope="module")
def found_new(table: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is found once the source has all messages of `NEW`."""
    root = copy_source(tmp_path_factory.mktemp("source"))
    for file, code, _ in (each.values for each in NEW):
        path = root / str(file)
        path.write_text(f"{path.read_text()}\n\n{code}")
    return list(problems(table, collect(root)))


@pytest.mark.parametrize(("file", "code", "message"), NEW)
def test_a_new_message_without_an_entry_is_found(found_new: list[str], file: str, code: str, message: str) -> None:
    assert len(found_new) == len(NEW)
    (found,) = (each for each in found_new if f"\n  {message}\n" in each)
    assert found.startswith(f"{file}:")
    assert "Add it under `messages` of an entry in hack/messages.yaml, with `cause` and `next`" in found


def test_an_entry_whose_message_no_code_has_is_found(source: Path, table: dict[str, Any]) -> None:
    path = source / "multikueue/engine/messages.py"
    path.write_text(path.read_text().replace('"The workload is admitted"', '"The workload runs"'))
    found = list(problems(table, collect(source)))
    assert len(found) == 2
    assert "no entry for this message:\n  The workload runs" in found[0]
    assert "no code has this message: remove or correct it:\n  The workload is admitted" in found[1]


def test_an_entry_that_is_there_twice_is_found(table: dict[str, Any], messages: list[Template]) -> None:
    assert list(problems({**table, "parts": [*table["parts"], "The workload is admitted"]}, messages)) == [
        "hack/messages.yaml: 2 entries for one message: The workload is admitted"
    ]


def test_log_lines_help_and_docstrings_are_no_messages(source: Path, table: dict[str, Any]) -> None:
    path = source / "manager/scheduler/scheduler.py"
    path.write_text(
        f"{path.read_text()}\n\n"
        'def quiet() -> None:\n    """Says nothing to users."""\n    _log.info("nothing to see here")\n'
        '    assert path, "this cannot be"\n'
    )
    assert list(problems(table, collect(source))) == []


def test_every_place_that_is_searched_is_there(messages: list[Template]) -> None:
    assert [place for place in (*MESSAGE_MODULES, *CALL_FOLDERS, RULE_FOLDER) if not (ROOT / place).exists()] == []
    assert len({template.file for template in messages}) > 90


def test_every_module_that_records_an_event_or_a_refusal_is_searched() -> None:
    files = [path for name in ("manager", "worker_agent") for path in (ROOT / name).rglob("*.py")]
    emit = {str(path.relative_to(ROOT)) for path in files if EMITS.search(path.read_text())}
    assert "manager/scheduler/scheduler.py" in emit
    assert sorted(emit - set(MESSAGE_MODULES)) == [], "add these to MESSAGE_MODULES in hack/message_templates.py"


def test_names_of_placeholders_do_not_matter() -> None:
    assert normal("no <one> of <two>") == normal("no <a> of <b / c>")
    assert normal("no <one><two>") == normal("no <one>")
