"""vLLM's base class, or, where vLLM is not installed, as much of it as a driver needs. The calls are those of vLLM's
vllm/distributed/kv_transfer/kv_connector/v1/base.py at commit 003df2961dd8."""

import enum

try:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # type: ignore
        KVConnectorBase_V1,
        KVConnectorHandshakeMetadata,
        KVConnectorMetadata,
        KVConnectorRole,
    )
except ImportError:

    class KVConnectorRole(enum.Enum):
        SCHEDULER = 0
        WORKER = 1

    class KVConnectorMetadata:
        """From the scheduler's connector to the workers', each step."""

    class KVConnectorHandshakeMetadata:
        """From the workers' connectors to the scheduler's, once."""

    class KVConnectorBase_V1:
        def __init__(self, vllm_config, role, kv_cache_config):
            self._vllm_config, self._role, self._kv_cache_config = vllm_config, role, kv_cache_config
            self._kv_transfer_config = vllm_config.kv_transfer_config
            self._connector_metadata = None

        @property
        def role(self):
            return self._role

        def bind_connector_metadata(self, connector_metadata):
            self._connector_metadata = connector_metadata

        def clear_connector_metadata(self):
            self._connector_metadata = None

        def _get_connector_metadata(self):
            assert self._connector_metadata is not None
            return self._connector_metadata
