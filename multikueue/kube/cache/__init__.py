# SPDX-License-Identifier: Apache-2.0
"""Caches of resources: the informer, its store, its subscribers."""
