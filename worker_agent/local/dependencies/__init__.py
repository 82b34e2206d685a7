# SPDX-License-Identifier: Apache-2.0
"""The objects that the pods of remote jobs need."""
