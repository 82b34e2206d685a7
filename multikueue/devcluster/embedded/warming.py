# SPDX-License-Identifier: Apache-2.0
"""What every embedded API server builds alike, built once before servers are forked.

Kinds, schemas and printer columns come from one table; they are cached where they are built, and the first server of a
process fills these caches. Holds nothing itself.
"""

from __future__ import annotations

from multikueue.devcluster.apiserver.server import ApiServer
from multikueue.devcluster.pki import new_key


def warm() -> None:
    """Fill the caches by a server that serves nobody."""
    ApiServer(signing_key=new_key())
