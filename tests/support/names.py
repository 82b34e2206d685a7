# SPDX-License-Identifier: Apache-2.0
"""Names of the objects of one test, which no other test has, nor the same test when it is run again."""

from __future__ import annotations

import re
import secrets
from typing import Final

_LONGEST_TITLE: Final = 20  # names derived from it must fit in a label


def unique_name(title: str) -> str:
    """A DNS label that begins with what fits of the title, such as a test's name, and ends at random."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower().removeprefix("test_"))
    return f"{words[:_LONGEST_TITLE].strip('-')}-{secrets.token_hex(4)}"
