"""The types of NIXL's compiled module but the agent itself."""

import enum

from ._errors import *  # noqa: F403
from ._errors import nixl_status_t
from ._lists import nixl_mem_t, nixlRegDList, nixlRemoteDList, nixlXferDList  # noqa: F401

DEFAULT_COMM_PORT = 8888
NIXL_INIT_AGENT = ""
HAVE_UCX_GPU_DEVICE_API = False


class nixl_xfer_op_t(enum.IntEnum):
    NIXL_READ = 0
    NIXL_WRITE = 1


class nixl_thread_sync_t(enum.IntEnum):
    NIXL_THREAD_SYNC_NONE = 0
    NIXL_THREAD_SYNC_STRICT = 1
    NIXL_THREAD_SYNC_RW = 2
    NIXL_THREAD_SYNC_DEFAULT = 0


class nixl_cost_t(enum.IntEnum):
    NIXL_COST_ANALYTICAL_BACKEND = 0


for _values in (nixl_status_t, nixl_mem_t, nixl_xfer_op_t, nixl_thread_sync_t, nixl_cost_t):
    globals().update(_values.__members__)


class nixlAgentConfig:
    def __init__(self, useProgThread=True, useListenThread=False, listenPort=DEFAULT_COMM_PORT,
                 syncMode=nixl_thread_sync_t.NIXL_THREAD_SYNC_NONE, num_workers=1, pthrDelay=0, lthrDelay=100000,
                 captureTelemetry=False):
        self.useProgThread = useProgThread
        self.useListenThread = useListenThread
        self.listenPort = listenPort
        self.syncMode = syncMode
        self.num_workers = num_workers
        self.pthrDelay = pthrDelay
        self.lthrDelay = lthrDelay
        self.captureTelemetry = captureTelemetry


class nixlXferTelemetry:
    """Times in microseconds."""

    def __init__(self):
        self.startTime = self.postDuration = self.xferDuration = self.totalBytes = self.descCount = 0
