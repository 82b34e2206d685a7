# SPDX-License-Identifier: Apache-2.0
"""The controllers that every cluster needs: jobs, deployments, scheduling, namespaces, service accounts, garbage ….

They are ordinary API clients built on `multikueue.kube`, so they run with the embedded API server and with a real one.
Pure functions over objects decide, a thin shell writes. Controllers of kube-controller-manager that a batch federation
does not need (volumes, replication controllers) are not implemented.
"""
