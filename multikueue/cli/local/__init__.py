# SPDX-License-Identifier: Apache-2.0
"""Local federations: up, down, status, kubeconfig, demo, binaries."""
