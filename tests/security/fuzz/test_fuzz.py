# SPDX-License-Identifier: Apache-2.0
"""The fuzz in short, the same writes at every run, and what longer runs have found.

`make fuzz` runs it for ten minutes with other writes each time. A file in `found/` is a failure as it was printed then;
it holds once what it broke is mended.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security.fuzz import catalogue, strategies
from tests.security.fuzz.campaign import Counts
from tests.security.fuzz.federation import fuzzed_federation
from tests.security.fuzz.running import breaks, run
from tests.security.fuzz.writes import Edit, Write, read, read_file, sent

pytestmark = pytest.mark.anyio

FOUND = sorted((Path(__file__).parent / "found").glob("*.jsonl"))
_BATCHES = 8
_SIZE = 70


@pytest.mark.attacks
@pytest.mark.timeout(600)
@pytest.mark.parametrize("webhooks", [True, False], ids=["asked-about-each-write", "asked-about-none"])
async def test_whatever_tenants_and_agents_write_the_federation_keeps_working(webhooks: bool) -> None:
    counts = Counts()
    batches = strategies.drawn(catalogue.targets(), count=_BATCHES, size=_SIZE, number=None if webhooks else _BATCHES)
    await run(batches, counts=counts, report=lambda text: None, webhooks=webhooks, shrink_tries=12)
    assert counts.accepted > _BATCHES * _SIZE // 4, f"few writes are taken: {counts.text()}"
    assert counts.lost == 0


@pytest.mark.attacks
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", FOUND, ids=[path.stem for path in FOUND])
async def test_what_the_fuzz_found_breaks_nothing_any_more(path: Path) -> None:
    assert await breaks(read_file(path), webhooks=False, silent_agent=True) is None


async def test_a_valid_body_of_each_target_is_taken() -> None:
    valid = [Write("tenant/jobs", slot) for slot in (2, 3, 6, 7)]
    refused = {}
    async with fuzzed_federation() as made:
        for write in valid:
            await made.send(write)
        await made.busy(within=30.0)
        for name in catalogue.targets():
            await made.look()
            answers = [await made.send(Write(name, slot)) for slot in range(8)]
            if not any(answer is not None and answer.status < 300 for answer in answers):
                refused[name] = answers
    assert not refused


def test_a_write_is_the_same_after_it_was_printed_and_read() -> None:
    write = Write("tenant/jobs", 3, (Edit(("metadata", "labels", "a"), "\ud800"), Edit(("spec", "x", 0), 1e308)))
    assert read(write.text()) == write


def test_markers_are_sent_as_their_values() -> None:
    assert sent({"a": "@digits:3@", "b": "@deep:2@", "c": "x@repeat:3:ab@y"}) == '{"a":999,"b":[[]],"c":"xabababy"}'
