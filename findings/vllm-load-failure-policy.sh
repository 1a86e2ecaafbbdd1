#!/usr/bin/env bash
# vLLM's scheduler can compute again what a KV connector failed to load, but by default ends the request with an error.
#
# Versions: vllm 0.33.0 from PyPI (336 MB; its source text alone is read, so no torch and no GPU).
# Expected: a connector reports blocks that it could not load by get_block_ids_with_load_errors(), so that the scheduler computes
#   them: the decoder has the prompt. An offer that came too late is no fault of the client, so it sees a slower answer.
# Seen: KVTransferConfig.kv_load_failure_policy is "fail", "immediately fail the request with an error finish reason (default)";
#   only "recompute" makes the scheduler compute. Whoever configures a connector as the one argument needs a second.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
temp_folder
python3 -m pip download -q --no-deps -d wheel vllm==0.33.0 || { echo "cannot download vllm" >&2; exit 77; }
python3 - <<'P'
import ast, glob, sys, zipfile

wheel = zipfile.ZipFile(glob.glob("wheel/*.whl")[0])
config = ast.parse(wheel.read("vllm/config/kv_transfer.py"))
defaults = {node.target.id: ast.unparse(node.value) for node in ast.walk(config) if isinstance(node, ast.AnnAssign) and node.value}
scheduler = ast.unparse(ast.parse(wheel.read("vllm/v1/core/sched/scheduler.py")))
policy = defaults["kv_load_failure_policy"]
print(f"kv_load_failure_policy: {policy} by default")
asks = "self.recompute_kv_load_failures = kv_load_failure_policy == 'recompute'" in scheduler
print(f"the scheduler computes again only by 'recompute': {asks}")
sys.exit(0 if policy == "'fail'" and asks else 1)
P
