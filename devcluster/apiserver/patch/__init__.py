# SPDX-License-Identifier: Apache-2.0
"""The four patch types, and who owns which field."""
