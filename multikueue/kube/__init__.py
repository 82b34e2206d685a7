# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes runtime: client, informer, store, work queue, controller, election, events.

Import the module that owns the noun: `multikueue.kube.client`, `multikueue.kube.informer`, and so on.
"""
