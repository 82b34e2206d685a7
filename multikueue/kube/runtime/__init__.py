# SPDX-License-Identifier: Apache-2.0
"""What runs reconcilers: work queue, controller, quarantine, leader election, events."""
