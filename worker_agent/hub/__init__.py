# SPDX-License-Identifier: Apache-2.0
"""The hub's side of the agent: connection, identity, mailbox, heartbeat, reports."""
