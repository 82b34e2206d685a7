# SPDX-License-Identifier: Apache-2.0
"""How assignments reach a worker cluster and its reports come back: pull by mailbox, push by kubeconfig."""
