# SPDX-License-Identifier: Apache-2.0
"""Child processes that end with their owner, whatever ends it."""
