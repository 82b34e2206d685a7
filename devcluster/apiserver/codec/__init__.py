# SPDX-License-Identifier: Apache-2.0
"""Bodies to objects and back: JSON, YAML, protobuf, tables."""
