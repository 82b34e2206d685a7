# SPDX-License-Identifier: Apache-2.0
"""The interface of job kinds, and what is common to all of them."""
