"""A KV connector for vLLM, on Fairway. vLLM loads it by its configuration:

    --kv-transfer-config '{"kv_connector": "FairwayConnector", "kv_connector_module_path": "fairway.vllm", "kv_role": "kv_both",
                           "kv_load_failure_policy": "recompute"}'

The decoder reads the pages of a finished prefill out of its memory, and uses them only when they were still that request's
after the last byte had come. Both sides have the same tensor-parallel size. docs/vllm.md says what happens when something fails.
"""

from .connector import FairwayConnector

__all__ = ["FairwayConnector"]
