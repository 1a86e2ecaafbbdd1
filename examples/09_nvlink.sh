#!/usr/bin/env bash
# What NVLink and NVSwitch carry: four H200 behind switches, and eight V100 joined in a mesh, both recorded. `fairway` must be on the
# PATH. docs/tutorial/09-nvlink.md explains each step; try them on a machine of your own without the --from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../tests/machines"

run() {
  printf '\n$ %s\n' "$*"
  "$@"
}

run fairway topo --from h200_x4.json
run fairway predict --from h200_x4.json gpu0:gpu1
run fairway predict --from h200_x4.json gpu0:gpu1 --what-if by=kernel
run fairway predict --from h200_x4.json gpu0:gpu1 gpu1:gpu0
run fairway predict --from h200_x4.json gpu0:gpu3 gpu1:gpu3 gpu2:gpu3
run fairway predict --from h200_x4.json gpu0:gpu1 --routes
run fairway topo --from dgx1v.json
run fairway predict --from dgx1v.json gpu0:gpu5 --routes
run fairway topo catalog
