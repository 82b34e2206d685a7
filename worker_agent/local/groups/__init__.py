# SPDX-License-Identifier: Apache-2.0
"""Groups of objects that are one remote job."""
