# SPDX-License-Identifier: Apache-2.0
"""The page of failed writes names every function that writes; `make attacks` plays what it says of each failure."""

from __future__ import annotations

from tests.simulation.scripts.write_failures import DOCUMENT, listed_writes, unplayed_section
from tests.simulation.scripts.write_sites import SENT_BY, UNPLAYED, write_sites


def test_every_function_that_writes_is_played_or_known_not_to_be() -> None:
    # "manager -> hub: create secrets (manager.seals.load)", with ": a purpose" where a function writes several.
    played = {write.partition("(")[2].rstrip(")").partition(":")[0] for write in listed_writes()}
    assert "" not in played
    sites = {SENT_BY.get(site, site) for site in write_sites()}
    assert sorted(sites - played - set(UNPLAYED)) == [], "functions that write, and that no course plays"
    assert sorted(set(UNPLAYED) - sites) == [], "functions that write nothing, or are gone"
    assert sorted(set(UNPLAYED) & played) == [], "functions that a course plays by now"


def test_the_page_ends_with_the_functions_that_no_course_plays() -> None:
    assert DOCUMENT.read_text().endswith("\n" + unplayed_section())
