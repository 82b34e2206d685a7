# SPDX-License-Identifier: Apache-2.0
"""Local clusters behind one interface, virtual nodes, and a whole federation of them.

Import the module that owns the noun: `multikueue.devcluster.cluster`, `multikueue.devcluster.federation`, and so on.
"""
