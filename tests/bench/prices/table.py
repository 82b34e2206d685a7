# SPDX-License-Identifier: Apache-2.0
"""The list of prices as tables in Markdown: milliseconds of CPU time of the API server, and of etcd behind a `+`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.bench.prices.price import Price

_ETCD: Final = "etcd"


def tables(prices: Sequence[Price]) -> str:
    """A table of kinds and verbs, and one of writes and conditions for each other part."""
    parts = dict.fromkeys(price.condition.part for price in prices)
    return "\n\n".join(_table(part, [price for price in prices if price.condition.part == part]) for part in parts)


def _table(part: str, prices: Sequence[Price]) -> str:
    cells = {_place(price): _cell(price) for price in prices}
    columns = list(dict.fromkeys(column for _, column in cells))
    rows = list(dict.fromkeys(row for row, _ in cells))
    lines = [_line(part, columns), "|" + "---|" * (len(columns) + 1)]
    return "\n".join([*lines, *(_line(row, [cells.get((row, column), "–") for column in columns]) for row in rows)])


def _place(price: Price) -> tuple[str, str]:
    """The row and the column."""
    if price.condition.under:
        return price.write.name, price.condition.under
    kind, _, verb = price.write.name.partition(": ")
    return kind, verb


def _cell(price: Price) -> str:
    etcd = price.cpu.get(_ETCD)
    text = f"{price.api_server:.2f}" if etcd is None else f"{price.api_server:.2f} + {etcd:.2f}"
    return f"{text} ({price.reviews:.1f} reviews)" if price.reviews >= 0.05 else text


def _line(first: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join((first, *cells))} |"
