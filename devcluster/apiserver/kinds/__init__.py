# SPDX-License-Identifier: Apache-2.0
"""What the kinds do of their own: defaults, preparation, validation, selectable fields, table cells."""
