# SPDX-License-Identifier: Apache-2.0
"""The controllers a cluster cannot do without: jobs, scheduling, namespaces, service accounts, garbage collection, ….

Ordinary clients of an API server through `multikueue.kube`, so they run beside the embedded server and beside a real
one alike. One noun a module: what is to be done is decided by pure functions over objects, a thin shell acts. What a
real kube-controller-manager runs beyond these (deployments, stateful sets, daemon sets, cron jobs, endpoints, volumes,
disruption budgets) has no part in a batch federation and is left out.
"""
