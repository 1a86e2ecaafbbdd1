#!/usr/bin/env bash
# Finds what is wrong with a node: by what was measured on it, beside its like, beside itself on a good day. The recorded H20 server,
# of which one copy is made worse. `fairway` must be on the PATH. docs/tutorial/15-diagnosing.md explains each step.
set -euo pipefail
machines=$(cd "$(dirname "${BASH_SOURCE[0]}")/../tests/machines" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$machines"/h20{.json,-ib_write_bw.csv} "$work"
cd "$work"

run() {
  printf '\n$ %s\n' "$*"
  "$@" || [[ $? == 1 ]]  # 1: something was found
}

# Three nodes that should be equal. The second came back from maintenance with a small MTU.
cp h20.json node-1.json
cp h20.json node-3.json
sed '0,/"active_mtu": {"value":4096/s//"active_mtu": {"value":1024/' h20.json >node-2.json

run fairway doctor --from h20.json --measured h20-ib_write_bw.csv --nic 0 --loop
run fairway doctor fleet node-1.json node-2.json node-3.json
run fairway doctor --from node-2.json --baseline node-1.json
run fairway topo diff node-1.json node-2.json
run fairway doctor --from node-2.json --quiet
run fairway topo lint node-2.json
