# SPDX-License-Identifier: Apache-2.0
"""The floor everything stands on: values of the standard library only, no I/O, no other package of ours."""
