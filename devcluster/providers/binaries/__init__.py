# SPDX-License-Identifier: Apache-2.0
"""Clusters of real etcd, kube-apiserver, kube-controller-manager and kube-scheduler processes."""
