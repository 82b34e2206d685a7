# SPDX-License-Identifier: Apache-2.0
"""What a cycle decides on: queues, the quota tree, reservations."""
