# SPDX-License-Identifier: Apache-2.0
"""What objects may look like: types of built-in kinds and of custom resources."""
