# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes runtime: client, informer, store, work queue, controller, leader election, events.

Import the module of the noun: `multikueue.kube.rest.client`, `multikueue.kube.cache.informer`, and so on.
"""
