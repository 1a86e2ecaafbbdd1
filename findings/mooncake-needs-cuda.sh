#!/usr/bin/env bash
# Mooncake's transfer engine from PyPI moves host memory by TCP, but cannot be imported on a machine without CUDA's driver.
#
# Versions: mooncake-transfer-engine 0.3.13.post1 from PyPI (98 MB), Python 3.11, no GPU.
# Expected: it imports where there is no GPU, as nixl's and UCX's packages do, and says at the first GPU memory that there is no
#   driver: hosts that only store caches have none. Or pip installs what it needs.
# Seen: "libcudart.so.12: cannot open shared object file"; no dependency names CUDA's runtime, and behind it the module is linked
#   with the driver, libcuda.so.1, which pip cannot install.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
temp_folder
[[ $(python3 -c 'import sys; print(sys.version_info[:2] == (3, 11))') == True ]] || { echo "the wheel is for Python 3.11" >&2; exit 77; }
ldconfig -p | grep -q libcuda.so.1 && { echo "this machine has CUDA's driver" >&2; exit 77; }
pypi mooncake-transfer-engine==0.3.13.post1
echo "needs, by its metadata: $(sed -n 's/^Requires-Dist: //p' site/mooncake_transfer_engine-*/METADATA | paste -sd, -)"
echo "linked with: $(readelf -d site/mooncake/engine*.so | grep -oE 'libcuda(rt)?\.so\.[0-9]+' | paste -sd ' ')"
python3 -c "import mooncake.engine" 2>error && exit 1
tail -1 error
grep -q "libcuda" error && ! grep -qi "^Requires-Dist: nvidia" site/mooncake_transfer_engine-*/METADATA
