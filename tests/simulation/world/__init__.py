# SPDX-License-Identifier: Apache-2.0
"""The simulated world: virtual time, the network, API servers, processes, and what runs on a cluster beside them."""
