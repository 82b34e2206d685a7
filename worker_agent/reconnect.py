# SPDX-License-Identifier: Apache-2.0
"""How soon the agent asks again for a server that is away.

An agent has a handful of watches on two servers and nothing to do but to wait for them: it asks about once a second,
which is also how late it sees a mailbox that is made after it was started.
"""

from __future__ import annotations

from typing import Final

from multikueue.core.backoff import Backoff

RECONNECT: Final = Backoff(base=0.25, factor=2.0, cap=1.0, jitter=0.5)
