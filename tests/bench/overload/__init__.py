# SPDX-License-Identifier: Apache-2.0
"""More Jobs than a federation can dispatch."""
