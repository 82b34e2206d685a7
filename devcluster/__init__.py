# SPDX-License-Identifier: Apache-2.0
"""Local clusters behind one interface, virtual nodes, and complete federations of them.

Import the module that owns the noun: `devcluster.cluster`, `devcluster.federation.federation`, and so on.
"""
