# SPDX-License-Identifier: Apache-2.0
"""What hub and workers must agree on: wire forms, names, epochs, digests, rights."""
