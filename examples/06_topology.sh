#!/usr/bin/env bash
# Reads the topology of a GPU server, step by step: the recorded H20 server, with what perftest measured there. `fairway` must be
# on the PATH. docs/tutorial/06-topology.md explains each step; try them on a machine of your own without the --from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../tests/machines"

run() {
  printf '\n$ %s\n' "$*"
  "$@"
}

run fairway topo --from h20.json
run fairway topo nics --gpu 1 --from h20.json
run fairway topo nics --gpu 4 --from h20.json
run fairway predict --from h20.json gpu1:nic0 gpu4:nic0
run fairway predict --bond-odds 2
run fairway predict --from h20.json gpu1:nic0 --what-if qps=4
run fairway predict --from h20.json --measured h20-ib_write_bw.csv --nic 0 --loop
# The doctor exits with 1 when it finds something: here it should.
run fairway doctor --from h20.json --measured h20-ib_write_bw.csv --nic 0 --loop || [[ $? == 1 ]]
run fairway predict --from h20.json gpu4:nic0 --routes
