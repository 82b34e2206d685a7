# SPDX-License-Identifier: Apache-2.0
"""What workers report of a workload, and what of it is recorded on the hub."""
