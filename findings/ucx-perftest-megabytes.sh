#!/usr/bin/env bash
# ucx_perftest's "MB/s" are MiB/s.
#
# Version: ucx-utils and libucx0 1.13.1-1 (Debian 12).
# Expected: as in other tools that print MB/s (iperf3, IMB, perftest without -R), 1 MB is 10^6 bytes: 1,000,000 bytes 1,400
#   times a second are 1,400 MB/s.
# Seen: the column "bandwidth (MB/s)" is the message rate times the size divided by 1,048,576: 1,335 for these. Who compares
#   it with another tool's figure, or with a link's rate, is 4.9 % off. The CSV of -f -v has no unit at all.
#   2000,0.297,724.367,723.893,1316.56,1317.43,1381,1381   (overall_bw 1317.43, overall_mr 1381: 1381 MB/s of 10^6)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
temp_folder
debian ucx-utils=1.13.1-1 libucx0=1.13.1-1

export UCX_TLS=shm,self UCX_WARN_UNUSED_ENV_VARS=n
port=$((20000 + RANDOM % 10000))
"$root/usr/bin/ucx_perftest" -p "$port" >/dev/null 2>&1 &
server=$!
sleep 1
line=$(timeout 60 "$root/usr/bin/ucx_perftest" -p "$port" 127.0.0.1 -t tag_bw -s 1000000 -n 2000 -f -v | tail -n 1)
wait "$server"
echo "seen: $line"
python3 - "$line" <<'P'
import sys
fields = [float(each) for each in sys.argv[1].split(",")]
bandwidth, rate = fields[5], fields[7]
ratio = rate * 1_000_000 / bandwidth
print(f"bytes a second / printed bandwidth: {ratio:,.0f}")
sys.exit(0 if abs(ratio / 1048576 - 1) < 0.005 else "the unit has changed: the finding no longer holds")
P
