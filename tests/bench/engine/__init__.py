# SPDX-License-Identifier: Apache-2.0
"""What the engine costs. `python -m tests.bench.engine` prints the figures."""
