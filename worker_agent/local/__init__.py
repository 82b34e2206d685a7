# SPDX-License-Identifier: Apache-2.0
"""The cluster's side of the agent: jobs, capacity, local queues, fencing."""
