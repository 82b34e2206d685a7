# SPDX-License-Identifier: Apache-2.0
"""Job kinds: their pod sets, suspend and resume, end, and status. Pure."""
