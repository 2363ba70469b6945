#!/bin/sh
# Deploys the lab's stack by `pulumi up` where there is a Pulumi, else by `divvy up`. Pulumi's
# backend is a folder of this checkout, whatever it is logged in to; the stack file is a copy,
# because Pulumi notes the salt of its passphrase in it.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
stack=${1:-lab}

if ! command -v pulumi >/dev/null; then
    echo "\$ divvy up -s $stack"
    exec divvy up -s "$stack" --yes
fi

project=build/demo-pulumi
mkdir -p "$project"
sed "s|^stackConfigDir:.*|main: $PWD|; s|virtualenv: .venv|virtualenv: $PWD/.venv|" Pulumi.yaml >"$project/Pulumi.yaml"
cp "stacks/Pulumi.$stack.yaml" "$project/Pulumi.$stack.yaml"
# A lab that was made anew is another cluster, of which an earlier state knows nothing.
uid=$(kubectl --kubeconfig "$(divvy lab kubeconfig)" get namespace kube-system --output=jsonpath='{.metadata.uid}')
mkdir -p "$project/$uid"
export PULUMI_BACKEND_URL="file://$PWD/$project/$uid" PULUMI_CONFIG_PASSPHRASE=
export PULUMI_SKIP_UPDATE_CHECK=true
echo "\$ pulumi up -s $stack"
pulumi --cwd "$project" stack select --create "$stack"
pulumi --cwd "$project" up -s "$stack" --yes --non-interactive
echo "\$ divvy status -s $stack --wait"
exec divvy status -s "$stack" --wait
