# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a declaration; apart from `reading`, whose models slow the start of `mkctl simulate`."""

from __future__ import annotations

from multikueue.core.errors import BadInput


class DeclarationMistakes(BadInput):
    """A declaration with mistakes; `problems` has each with its path."""

    def __init__(self, origin: str, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(f"{origin}: {problem}" for problem in problems))
        self.problems = problems
