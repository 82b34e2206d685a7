# SPDX-License-Identifier: Apache-2.0
"""The rich console of `mkctl`, for tables, progress and the demo's live view.

Text is printed literally: markup such as `[bold]` and emoji names have no effect, and control characters are escaped.
Use `rich.text.Text` for styles.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from multikueue.core.printable import printable

_LAYOUT = "\n"


class PrintableConsole(Console):
    """A `Console` for untrusted text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape before the layout, so that column widths are right."""
        return super().render_str(printable(text, keep=_LAYOUT), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape `Text` too; control segments come from rich itself."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text, keep=_LAYOUT))
