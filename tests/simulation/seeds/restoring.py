# SPDX-License-Identifier: Apache-2.0
"""A backup of a management cluster, and the restore of the hub: an etcd snapshot, as far as an API server shows it.

Does what `etcdctl snapshot save` and `etcdutl snapshot restore` do: all objects with their former versions, and nothing
that was written later. Versions continue from there, so that numbers are used twice, or far beyond every number that
was used, with older versions compacted (`--bump-revision`, `--mark-compacted`).

What a federation guarantees across a restore, and what it cannot:

- Quota, one grant for each epoch, no status for an old epoch: as always, among all that the hub stores. Lost state does
  not count: the number of an epoch is used again, and status for the first use is ignored.
- All work that is wanted, and submitted again if it was lost, ends; nothing is left anywhere.
- `fenced` work runs once, if the hub was unreachable for a lease and the grace before it was restored, and an agent is
  beside each cluster: each has stopped it by then. With push, or on a hub that comes back sooner, a forgotten remote
  job may run for a moment beside a new one.
- Not guaranteed: work that finished since the backup, and whose remote job is deleted, runs again. A remote job that is
  in no backup and that is found finished (push) completes its job, as its user wants.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.storage.store import ObjectStore

_BUMP: Final = 1000


class Backup:
    """All that a store holds at one moment."""

    def __init__(self, store: ObjectStore) -> None:
        self._version = store.version
        self._entries = {name: list(store.collection(name).entries()) for name in store.names}

    def restore(self, store: ObjectStore, *, bump: bool) -> None:
        """Make the store hold that again, and nothing else; who watches it has been cut off."""
        store.version = store.version + _BUMP if bump else self._version
        for name in store.names:
            store.drop(name)
        for name, entries in self._entries.items():
            store.collection(name).restore(entries)
