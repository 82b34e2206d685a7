# SPDX-License-Identifier: Apache-2.0
"""Discovery and OpenAPI."""
