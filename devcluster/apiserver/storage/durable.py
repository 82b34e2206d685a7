# SPDX-License-Identifier: Apache-2.0
"""The journal that keeps objects in SQLite.

Each `put` and `remove` is one transaction and survives a crash of the process once it has returned. A power failure may
lose the last ones, but never changes the order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from devcluster.apiserver.storage.entry import StoredObject

_PUT: Final = (
    "INSERT INTO objects VALUES (?, ?, ?, ?)"
    " ON CONFLICT (collection, key) DO UPDATE SET version = excluded.version, value = excluded.value"
)
"""Updates the row in place, instead of deleting and inserting it."""


class SqliteJournal:
    """Keeps objects in one file; implements `devcluster.apiserver.storage.store.WriteJournal`."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA page_size=16384",  # most objects fit one page, updated in place; for new files only
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=NORMAL",
            "CREATE TABLE IF NOT EXISTS objects"
            " (collection TEXT, key TEXT, version INTEGER, value BLOB, PRIMARY KEY (collection, key))",
            "CREATE TABLE IF NOT EXISTS removals (one INTEGER PRIMARY KEY, version INTEGER)",
        ):
            self._database.execute(statement)

    def load(self) -> tuple[int, Iterator[tuple[str, StoredObject]]]:
        """The last version written, and every object with its collection's name."""
        last = 0
        for table in ("objects", "removals"):
            one = self._database.execute(f"SELECT coalesce(max(version), 0) FROM {table}").fetchone()
            last = max(last, int(one[0]))
        return last, self._rows()

    def put(self, collection: str, entry: StoredObject) -> None:
        """Write an object; durable when this returns."""
        self._database.execute(_PUT, (collection, entry.key, entry.version, entry.raw))

    def remove(self, collection: str, key: str, version: int) -> None:
        """Write a removal; durable when this returns."""
        self._database.execute("BEGIN")
        self._database.execute("DELETE FROM objects WHERE collection = ? AND key = ?", (collection, key))
        self._database.execute("INSERT OR REPLACE INTO removals VALUES (1, ?)", (version,))
        self._database.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _rows(self) -> Iterator[tuple[str, StoredObject]]:
        for collection, key, version, value in self._database.execute("SELECT * FROM objects"):
            yield collection, StoredObject(key=key, version=version, raw=value)
