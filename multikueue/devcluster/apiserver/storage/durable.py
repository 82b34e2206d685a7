# SPDX-License-Identifier: Apache-2.0
"""The journal that keeps objects in SQLite.

Owns one file with a write-ahead log. Promises that what `put` or `remove` returned for survives the process whatever
happens to it: each is one transaction. Losing the machine's power may lose the last ones, never the order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from multikueue.devcluster.apiserver.storage.entry import Entry

_PUT: Final = (
    "INSERT INTO objects VALUES (?, ?, ?, ?)"
    " ON CONFLICT (collection, key) DO UPDATE SET version = excluded.version, value = excluded.value"
)
"""Writes over the row that is there, instead of removing it and making another."""


class SqliteJournal:
    """Keeps objects in one file; implements `multikueue.devcluster.apiserver.storage.store.Journal`."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA page_size=16384",  # most objects in one page, which is written over in place; for new files only
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=NORMAL",
            "CREATE TABLE IF NOT EXISTS objects"
            " (collection TEXT, key TEXT, version INTEGER, value BLOB, PRIMARY KEY (collection, key))",
            "CREATE TABLE IF NOT EXISTS removals (one INTEGER PRIMARY KEY, version INTEGER)",
        ):
            self._database.execute(statement)

    def load(self) -> tuple[int, Iterator[tuple[str, Entry]]]:
        """The last version written, and every object with its collection's name."""
        last = 0
        for table in ("objects", "removals"):
            one = self._database.execute(f"SELECT coalesce(max(version), 0) FROM {table}").fetchone()
            last = max(last, int(one[0]))
        return last, self._rows()

    def put(self, collection: str, entry: Entry) -> None:
        """Keep an object; it is kept when this returns."""
        self._database.execute(_PUT, (collection, entry.key, entry.version, entry.raw))

    def remove(self, collection: str, key: str, version: int) -> None:
        """Keep a removal; it is kept when this returns."""
        self._database.execute("BEGIN")
        self._database.execute("DELETE FROM objects WHERE collection = ? AND key = ?", (collection, key))
        self._database.execute("INSERT OR REPLACE INTO removals VALUES (1, ?)", (version,))
        self._database.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _rows(self) -> Iterator[tuple[str, Entry]]:
        for collection, key, version, value in self._database.execute("SELECT * FROM objects"):
            yield collection, Entry(key=key, version=version, raw=value)
