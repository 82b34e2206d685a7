# SPDX-License-Identifier: Apache-2.0
"""ConfigMaps and Secrets that are sent with jobs: what is allowed, how it is exchanged, and whose a copy is."""
