# SPDX-License-Identifier: Apache-2.0
"""`mkctl logs`: the output of a Job, wherever its pods run."""
