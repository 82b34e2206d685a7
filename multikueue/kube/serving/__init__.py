# SPDX-License-Identifier: Apache-2.0
"""The HTTP servers of our processes, and what one client may cost them."""
