# SPDX-License-Identifier: Apache-2.0
"""Values that need only the standard library: no I/O, no import of our other packages."""
