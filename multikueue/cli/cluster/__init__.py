# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster`: the worker clusters of a hub, from their registration to their removal."""
