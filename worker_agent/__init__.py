# SPDX-License-Identifier: Apache-2.0
"""The worker-cluster process: it dials out to its mailbox, runs what it is granted, and reports."""
