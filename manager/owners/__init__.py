# SPDX-License-Identifier: Apache-2.0
"""Jobs and pods in the name of an owner: whether that owner's quota covers them."""
