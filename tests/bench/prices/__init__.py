# SPDX-License-Identifier: Apache-2.0
"""What one write costs an API server. `python -m tests.bench.prices` prints the list."""
