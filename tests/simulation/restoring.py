# SPDX-License-Identifier: Apache-2.0
"""A backup of a management cluster, and the hub put back to it: an etcd snapshot, as far as an API server shows it.

Owns what `etcdctl snapshot save` and `etcdutl snapshot restore` do: all objects with their versions of then, and of
what was written since nothing. The line of versions goes on from there, so that numbers are given out twice, or far
beyond every number that was ever given out, with what is older compacted (`--bump-revision`, `--mark-compacted`).

What holds of a federation across that, and what cannot:

- Quota, one grant for each epoch, no word about an old epoch: as ever, among all that the hub knows. What it has
  forgotten does not count: the number of an epoch is given out again, and what was said of the first is not believed.
- Everything that is wanted, and submitted again where it is lost, ends; nothing is left anywhere.
- `fenced` work has one live copy, if the hub was away for a lease and the grace before it was put back, and an agent is
  beside each cluster: each has stopped it by then. Where the manager itself is the agent nobody does, as nobody does on
  a hub that comes back sooner: for a moment there a copy of the forgotten time may run beside a new one.
- Not in principle: what had ended since the backup, and whose copy is gone, runs again. A copy that nobody remembers
  and that is read back where it ended (push) completes its job, which is what was wanted.
"""

from __future__ import annotations

from typing import Final

from multikueue.devcluster.apiserver.storage.store import Store

_BUMP: Final = 1000


class Backup:
    """All that a store holds at one moment."""

    def __init__(self, store: Store) -> None:
        self._version = store.version
        self._entries = {name: list(store.collection(name).entries()) for name in store.names}

    def put_back(self, store: Store, *, bump: bool) -> None:
        """Make the store hold that again, and nothing else; who watches it has been cut off."""
        store.version = store.version + _BUMP if bump else self._version
        for name in store.names:
            store.drop(name)
        for name, entries in self._entries.items():
            store.collection(name).restore(entries)
