#!/usr/bin/env bash
# A NIC that reads GPU memory by itself, and what the order of PCIe packets costs there: a recorded server, and two measurements of
# a virtual machine. `fairway` must be on the PATH. docs/tutorial/10-gpudirect.md explains each step.
set -euo pipefail
machines=$(cd "$(dirname "${BASH_SOURCE[0]}")/../tests/machines" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$machines/h20.json" "$work"
cd "$work"

run() {
  printf '\n$ %s\n' "$*"
  "$@"
}

run fairway predict --from h20.json gpu1:nic0
run fairway predict --from h20.json gpu1:nic0 --what-if qps=4,round-robin=yes,vm=yes,ordering=strict
run fairway predict --from h20.json gpu1:nic0 --what-if qps=4,round-robin=yes,vm=yes,ordering=relaxed
run fairway predict --from h20.json gpu4:nic0 --what-if cpu=emr,ordering=strict
run fairway predict --from h20.json gpu4:nic0 --what-if cpu=emr,ordering=relaxed
# Two runs that differ in this alone, as rows: what the doctor makes of them.
cat >two-runs.csv <<'ROWS'
from,to,mode,qps,ordering,gbps
gpu1,nic0,send,4,strict,84
gpu1,nic0,send,4,relaxed,390
ROWS
run fairway doctor --from h20.json --measured two-runs.csv || [[ $? == 1 ]]
run fairway predict --constants
