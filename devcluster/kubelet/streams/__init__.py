# SPDX-License-Identifier: Apache-2.0
"""Streams into virtual containers: WebSocket and SPDY/3.1 protocols, remote commands and port forwarding."""
