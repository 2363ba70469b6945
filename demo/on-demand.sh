#!/bin/sh
# One A100 as pods ask for it: shared by size, then whole, then seven MIG devices, then free again.
# Nothing changes but pods. Needs KUBECTL and DIVVY (commands), STACK, and IMAGE (divvy/workloads).
set -eu
folder=$(dirname "$0")

create() { sed "s|registry.example:5000/divvy/workloads|$IMAGE|" "$folder/$1" | $KUBECTL create --filename=- >/dev/null; }
# kubectl logs an error of its own where several pods get ready; it counts where the wait fails.
ready() { said=$($KUBECTL wait pod "$@" --for=condition=Ready --timeout=90s 2>&1) || { echo "$said" >&2; return 1; }; }
remove() { $KUBECTL delete "$@" --timeout=60s >/dev/null; }
agents() { $KUBECTL get pods --namespace=divvy-system --selector=app.kubernetes.io/component=agent --output=name | sort; }

own="pod/share-3000 pod/share-6000 pod/whole replicaset/seven"
# What a run before this one has left, if it was killed.
$KUBECTL delete --ignore-not-found --timeout=60s $own >/dev/null
trap '$KUBECTL delete --ignore-not-found --wait=false $own >/dev/null' EXIT
# A shell may end by a signal without what is to be done at its exit.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
agents_before=$(agents)

echo "-- two pods ask for 3,000 and 6,000 MiB of one A100"
create shares.yaml
ready share-3000 share-6000
$KUBECTL exec share-3000 -- nvidia-smi | sed -n '/A100/,/MiB/p'
$KUBECTL exec share-6000 -- nvidia-smi | sed -n '/A100/,/MiB/p'

echo "-- a third asks for the whole GPU, and waits; divvy why says for whom"
create whole.yaml
$KUBECTL wait pod whole --for=condition=PodScheduled=false --timeout=30s >/dev/null
$DIVVY why whole -s "$STACK" || [ $? = 2 ]

echo "-- the two end: it runs"
remove pod/share-3000 pod/share-6000
ready whole
$KUBECTL exec whole -- nvidia-smi -L

echo "-- it ends, and seven pods ask for a MIG device each"
remove pod/whole
create seven.yaml
ready --selector=app=seven
$DIVVY top -s "$STACK" --once --node gpu-on-demand

echo "-- they end: no MIG device is left, and no agent was restarted"
remove replicaset/seven
$KUBECTL wait pod --selector=app=seven --for=delete --timeout=60s >/dev/null
$DIVVY top -s "$STACK" --once --node gpu-on-demand
[ "$agents_before" = "$(agents)" ]
