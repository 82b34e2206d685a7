# SPDX-License-Identifier: Apache-2.0
"""What is served and how it is read and written: one module for each verb, above the storage."""
