# SPDX-License-Identifier: Apache-2.0
"""The Common Expression Language, as far as rules on Kubernetes objects use it, compiled to closures."""
