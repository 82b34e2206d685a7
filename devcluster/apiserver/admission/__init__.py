# SPDX-License-Identifier: Apache-2.0
"""What looks at a write before it is stored: built-in rules and webhooks."""
