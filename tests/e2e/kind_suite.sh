#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a suite written for Kueue on three kind clusters does: kubectl, names of contexts and objects, nothing of ours.
set -euo pipefail
manager() { kubectl --context "kind-$MANAGER_KIND_CLUSTER_NAME" "$@"; }
worker() { kubectl --context "kind-$WORKER1_KIND_CLUSTER_NAME" "$@"; }
step() { echo "== $*" >&2; }
system=$KUEUE_NAMESPACE

step "an installed Kueue is found on each cluster"
for cluster in "$MANAGER_KIND_CLUSTER_NAME" "$WORKER1_KIND_CLUSTER_NAME" "$WORKER2_KIND_CLUSTER_NAME"; do
  found="kubectl --context kind-$cluster -n $system"
  $found wait deploy/kueue-controller-manager --for=condition=Available --timeout=30s
  $found rollout status deploy/kueue-controller-manager --timeout=30s
  $found wait pods -l control-plane=controller-manager --for=condition=Ready --timeout=30s
  ready=$($found get endpointslice -l kubernetes.io/service-name=kueue-webhook-service \
    -o jsonpath='{.items[*].endpoints[*].conditions.ready}')
  [[ $ready == true ]] || { echo "endpoints of the webhook Service: '$ready'" >&2; exit 1; }
  $found get service kueue-webhook-service
  $found get secret kueue-webhook-server-cert
  holder=$($found get lease c1f6bfd2.kueue.x-k8s.io -o jsonpath='{.spec.holderIdentity}')
  pod=$($found get pods -l control-plane=controller-manager -o jsonpath='{.items[0].metadata.name}')
  [[ $holder == "$pod"_* ]] || { echo "the lease is held by '$holder', not by pod $pod" >&2; exit 1; }
done

step "an edited configuration holds after a restart"
manager -n "$system" get configmap kueue-manager-config -o jsonpath='{.data.controller_manager_config\.yaml}' \
  >"$SCRATCH/configuration.yaml"
echo "manageJobsWithoutQueueName: true" >>"$SCRATCH/configuration.yaml"
manager -n "$system" create configmap kueue-manager-config --dry-run=client -o yaml \
  --from-file="controller_manager_config.yaml=$SCRATCH/configuration.yaml" | manager apply --server-side --force-conflicts -f -
manager -n "$system" rollout restart deploy/kueue-controller-manager
manager -n "$system" rollout status deploy/kueue-controller-manager --timeout=60s
manager wait --for=jsonpath='{.spec.suspend}'=true --timeout=20s -f - <<<"$(
  manager create job without-queue --image=x -o json)"

step "a worker is reached by the kubeconfig of a service account, at the host name that kind gives it"
worker -n "$system" create serviceaccount multikueue
worker create clusterrolebinding multikueue --clusterrole=cluster-admin --serviceaccount="$system:multikueue"
cat >"$SCRATCH/worker.yaml" <<END
apiVersion: v1
kind: Config
current-context: worker
contexts: [{name: worker, context: {cluster: worker, user: multikueue}}]
users: [{name: multikueue, user: {token: "$(worker -n "$system" create token multikueue)"}}]
clusters:
- name: worker
  cluster:
    server: https://$WORKER1_KIND_CLUSTER_NAME-control-plane:6443
    certificate-authority-data: "$(worker config view --minify --flatten --raw \
  -o jsonpath='{.clusters[0].cluster.certificate-authority-data}')"
END
manager -n "$system" create secret generic worker1 --from-file=kubeconfig="$SCRATCH/worker.yaml"
queues() {
  cat <<END
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: jobs}
spec:
  namespaceSelector: {}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4}]}]}]
  $1
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: jobs, namespace: default}
spec: {clusterQueue: jobs}
END
}
queues "" | worker apply -f -
manager apply -f - <<END
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueConfig
metadata: {name: workers}
spec: {clusters: [worker1]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueCluster
metadata: {name: worker1}
spec: {clusterSource: {kubeConfig: {location: worker1, locationType: Secret}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: workers}
spec:
  controllerName: kueue.x-k8s.io/multikueue
  parameters: {apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: workers}
END
queues "admissionChecksStrategy: {admissionChecks: [{name: workers}]}" | manager apply -f -
manager wait multikueuecluster/worker1 --for=condition=Active --timeout=30s
manager wait clusterqueue/jobs --for=condition=Active --timeout=30s

step "a Job runs on the worker, by the worker's own queue"
manager create -f - <<END
apiVersion: batch/v1
kind: Job
metadata: {name: federated, namespace: default, labels: {kueue.x-k8s.io/queue-name: jobs}}
spec:
  template:
    metadata: {annotations: {multikueue.io/run-for: 1s}}
    spec: {restartPolicy: Never, containers: [{name: main, image: x, resources: {requests: {cpu: 1}}}]}
END
manager wait job/federated --for=condition=Complete --timeout=30s
step "done"
exit "${EXIT_CODE:-0}"
