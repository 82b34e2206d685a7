# SPDX-License-Identifier: Apache-2.0
"""Kind clusters for tests on machines with docker; needs the optional package pytest-kind."""
