# SPDX-License-Identifier: Apache-2.0
"""multikueue: a multi-cluster federation controller for batch work on Kubernetes, compatible with Kueue.

The library. No process starts here: the processes are `manager`, `worker_agent` and `multikueue.cli`.
"""

from __future__ import annotations

__version__ = "0.1.0"
