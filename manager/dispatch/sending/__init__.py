# SPDX-License-Identifier: Apache-2.0
"""ConfigMaps and Secrets of the hub that are sent with jobs."""
