# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes API server in pure Python, for clusters that start in a blink."""
