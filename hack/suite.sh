#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test suite that was written for Kueue on kind against local clusters with our manager installed.
#
#   hack/suite.sh [--federation NAME] [OPTIONS OF mkctl up] -- COMMAND [ARGUMENT...]
#
# Three clusters (NAME-manager, NAME-worker1, NAME-worker2), or one (NAME) with `--workers 0`. The exit code is that of
# the command; 125 if the clusters did not start. See docs/testing.md.
set -euo pipefail

usage() {
  sed -n '3,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

name=kind
workers=2
up_options=()
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
    -h | --help) usage ;;
    --federation | --name) name=${2:?"$1 needs a name"}; shift 2 ;;
    --federation=* | --name=*) name=${1#*=}; shift ;;
    --workers) workers=${2:?"$1 needs a number"}; shift 2 ;;
    --workers=*) workers=${1#*=}; shift ;;
    *) up_options+=("$1"); shift ;;
  esac
done
[[ ${1:-} == -- && $# -ge 2 ]] || usage
shift

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkctl=${MKCTL:-$here/../.venv/bin/mkctl}
[[ -x $mkctl ]] || mkctl=$(command -v mkctl) || { echo "suite.sh: no mkctl; run make first, or set MKCTL" >&2; exit 125; }
folder=${XDG_STATE_HOME:-$HOME/.local/state}/multikueue/$name
if [[ -e $folder ]]; then
  echo "suite.sh: federation $name exists; run \`mkctl down --name $name\`, or use --federation" >&2
  exit 125
fi

code=125
finish() {
  trap - EXIT
  if [[ $code -ne 0 && -d $folder ]]; then
    kept=${ARTIFACTS:-$(mktemp -d "${TMPDIR:-/tmp}/multikueue-suite-XXXXXX")}/$name
    mkdir -p "$kept"
    (cd "$folder" && find . -name '*.log' -exec cp --parents {} "$kept" \;)
    echo "suite.sh: exit code $code; the logs of clusters and managers are in $kept" >&2
  fi
  "$mkctl" down --name "$name" >&2 || true
  exit "$code"
}
trap finish EXIT
trap 'code=143; exit' TERM
trap 'code=130; exit' INT

"$mkctl" up --name "$name" --as-kind "$name" --workers "$workers" "${up_options[@]}" >/dev/null

KUBECONFIG=$("$mkctl" kubeconfig --name "$name")
export KUBECONFIG
export KIND_CLUSTER_NAME=$name CREATE_KIND_CLUSTER=false KUEUE_NAMESPACE=kueue-system
if [[ $workers -gt 0 ]]; then
  export MANAGER_KIND_CLUSTER_NAME=$name-manager
  for ((number = 1; number <= workers; number++)); do
    export "WORKER${number}_KIND_CLUSTER_NAME=$name-worker$number"
  done
fi

code=0
"$@" || code=$?
