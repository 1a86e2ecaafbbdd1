"""The class that vLLM loads: each of its calls goes to the scheduler's half or to the worker's."""

import logging

from .base import KVConnectorBase_V1, KVConnectorRole
from .messages import Handshake
from .scheduler import SchedulerSide
from .worker import WorkerSide


_log = logging.getLogger("fairway.vllm")


class FairwayConnector(KVConnectorBase_V1):
    """kv_connector_extra_config: any option of fairway.Engine ("listen", "job_key", "transports", ...), and
    "unclaimed_seconds" (480): when a prefill whose decoder never came gives its blocks back."""

    def __init__(self, vllm_config, role, kv_cache_config=None):
        super().__init__(vllm_config, role, kv_cache_config)
        config = vllm_config.kv_transfer_config
        extra = dict(getattr(config, "kv_connector_extra_config", None) or {})
        unclaimed = float(extra.pop("unclaimed_seconds", 480))
        self.scheduler = self.worker = None
        if role == KVConnectorRole.SCHEDULER:
            if getattr(config, "kv_load_failure_policy", "recompute") == "fail":
                _log.warning("kv_load_failure_policy is 'fail', vLLM's default: each load that fails, also of an offer that came too late, is an "
                             "error for its client. Set \"kv_load_failure_policy\": \"recompute\" and the decoder computes the request")
            self.scheduler = SchedulerSide(getattr(config, "engine_id", ""), vllm_config.cache_config.block_size)
        else:
            rank = getattr(getattr(vllm_config, "parallel_config", None), "rank", 0)
            tensor_parallel = getattr(getattr(vllm_config, "parallel_config", None), "tensor_parallel_size", 1)
            self.worker = WorkerSide(rank % tensor_parallel, unclaimed, extra)

    # ---- the scheduler's ----

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return self.scheduler.matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        group = blocks.blocks[0]
        shared = {block.block_id for block in group if block.block_hash is not None}
        self.scheduler.allocated(request, [block.block_id for block in group], shared, num_external_tokens)

    def build_connector_meta(self, scheduler_output):
        return self.scheduler.metadata(getattr(scheduler_output, "preempted_req_ids", None))

    def update_connector_output(self, connector_output):
        self.scheduler.sent(connector_output.finished_sending)

    def request_finished(self, request, block_ids):
        return self.scheduler.finished(request, block_ids)

    def set_xfer_handshake_metadata(self, metadata):
        self.scheduler.addresses = [metadata[rank].address for rank in sorted(metadata)]

    # ---- the workers' ----

    def get_handshake_metadata(self):
        return Handshake(self.worker.engine.address)

    def register_kv_caches(self, kv_caches):
        self.worker.register(kv_caches, self._kv_cache_config.num_blocks)

    def handle_preemptions(self, kv_connector_metadata):
        # Older vLLM hands over the names themselves.
        self.worker.stop(getattr(kv_connector_metadata, "preempted", kv_connector_metadata))

    def start_load_kv(self, forward_context, **kwargs):
        self.worker.take(self._get_connector_metadata())

    def wait_for_layer_load(self, layer_name):
        """Loads are asynchronous: a request is scheduled once all of its layers are here."""

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        """Nothing to save: decoders read the cache itself."""

    def wait_for_save(self):
        pass

    def get_finished(self, finished_req_ids):
        return self.worker.finished(finished_req_ids)

    def get_block_ids_with_load_errors(self):
        return self.worker.take_errors()

    def shutdown(self):
        if self.worker is not None:
            self.worker.close()
