# SPDX-License-Identifier: Apache-2.0
"""The logs of remote Jobs: who asks for them, and their way from the agent to the hub."""
