"""NIXL's Python API (nixl._api of 1.4) on Fairway: the same classes, calls and answers. docs/nixl.md says what differs."""

# size: the calls of one class of NIXL's, read beside NIXL's own documentation

import enum
import io
import pickle
import sys

import numpy as np

from . import _bindings as bind
from .logging import get_logger

logger = get_logger("nixl._api")
DEFAULT_COMM_PORT = bind.DEFAULT_COMM_PORT
nixl_backend_handle = int


class nixl_thread_sync_t(enum.Enum):
    """Taken for NIXL's sake: an agent here is thread-safe in every mode."""

    NIXL_THREAD_SYNC_NONE = bind.NIXL_THREAD_SYNC_NONE
    NIXL_THREAD_SYNC_STRICT = bind.NIXL_THREAD_SYNC_STRICT
    NIXL_THREAD_SYNC_RW = bind.NIXL_THREAD_SYNC_RW
    NIXL_THREAD_SYNC_DEFAULT = bind.NIXL_THREAD_SYNC_DEFAULT


class _Handle:
    """Released by release(), or with its last user."""

    __slots__ = ("_handle", "_agent", "_released")

    def __init__(self, agent, value):
        self._handle, self._agent, self._released = int(value), agent, False

    def __repr__(self):
        return f"{type(self).__name__}(0x{self._handle:x}, released={self._released})"

    def release(self):
        if not self._released:
            self._give_back()
            self._released = True

    def __del__(self):
        try:
            self.release()
        except Exception as error:
            logger.error("%r is not released: %s", self, error)


class nixl_prepped_dlist_handle(_Handle):
    def _give_back(self):
        self._agent.releasedDlistH(self._handle)


class nixl_xfer_handle(_Handle):
    """release() of one in flight ends it, and returns when nothing touches this agent's memory any more; else it raises."""

    def _give_back(self):
        self._agent.releaseXferReq(self._handle)


def _checked(handle):
    if not isinstance(handle, _Handle):
        raise TypeError(f"a handle is what initialize_xfer(), make_prepped_xfer() or prep_xfer_dlist() gives, not a {type(handle).__name__}")
    return handle


def _number(handle):
    return _checked(handle)._handle


class nixl_agent_config:
    def __init__(self, enable_prog_thread=True, enable_listen_thread=False, listen_port=DEFAULT_COMM_PORT,
                 capture_telemetry=False, num_threads=0, backends=("UCX",), sync_mode=None):
        if sync_mode is not None and not isinstance(sync_mode, nixl_thread_sync_t):
            raise TypeError(f"sync_mode must be a nixl_thread_sync_t (got {type(sync_mode).__name__!r})")
        self.backends = list(backends)
        self.enable_pthread = enable_prog_thread
        self.enable_listen = enable_listen_thread
        self.port = listen_port
        self.capture_telemetry = capture_telemetry
        self.num_threads = num_threads
        self.sync_mode = sync_mode


class _Descriptors(pickle.Unpickler):
    """Descriptor lists come from peers: nothing else is unpickled."""

    def find_class(self, module, name):
        if module == "fairway.nixl._lists" and name in ("nixlXferDList", "nixlRegDList", "nixlRemoteDList"):
            return getattr(bind, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no descriptor list")


def _is_tensor(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class nixl_agent:
    """An agent: registers memory, knows other agents by their metadata, reads and writes their memory.

    agent_name: unique in the job. nixl_conf: a nixl_agent_config. instantiate_all: all plugins as backends.
    """

    def __init__(self, agent_name, nixl_conf=None, instantiate_all=False):
        if nixl_conf and instantiate_all:
            instantiate_all = False
            logger.warning("Ignoring instantiate_all based on the provided config in agent creation.")
        conf = nixl_conf or nixl_agent_config()
        if not isinstance(conf, nixl_agent_config):
            raise TypeError(f"nixl_conf is a nixl_agent_config, not a {type(conf).__name__}")
        config = bind.nixlAgentConfig()
        config.useProgThread, config.useListenThread, config.listenPort = conf.enable_pthread, conf.enable_listen, conf.port
        default = nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT if conf.enable_listen else nixl_thread_sync_t.NIXL_THREAD_SYNC_NONE
        config.syncMode = (conf.sync_mode or default).value
        config.captureTelemetry = conf.capture_telemetry
        self.agent = bind.nixlAgent(agent_name, config)
        self.name = agent_name
        self.notifs, self.backends, self.backend_mems, self.backend_options = {}, {}, {}, {}
        self.plugin_list = self.agent.getAvailPlugins()
        self.nixl_mems = {"DRAM": bind.DRAM_SEG, "VRAM": bind.VRAM_SEG, "FILE": bind.FILE_SEG, "BLOCK": bind.BLK_SEG,
                          "OBJ": bind.OBJ_SEG, "cpu": bind.DRAM_SEG, "cuda": bind.VRAM_SEG}
        self.nixl_ops = {"WRITE": bind.NIXL_WRITE, "READ": bind.NIXL_READ}
        for backend in self.plugin_list if instantiate_all else conf.backends:
            if backend in self.plugin_list:
                self.create_backend(backend)
            else:
                logger.warning("Skipping backend registration %s due to the missing plugin.", backend)

    # ---- plugins and backends ----

    def get_plugin_list(self):
        return self.plugin_list

    def get_plugin_mem_types(self, backend):
        return self.agent.getPluginParams(backend)[1] if backend in self.plugin_list else []

    def get_plugin_params(self, backend):
        return self.agent.getPluginParams(backend)[0] if backend in self.plugin_list else {}

    def get_backend_mem_types(self, backend):
        return self.backend_mems.get(backend, [])

    def get_backend_params(self, backend):
        return self.backend_options.get(backend, {})

    def create_backend(self, backend, initParams={}):
        self.backends[backend] = self.agent.createBackend(backend, initParams)
        self.backend_options[backend], self.backend_mems[backend] = self.agent.getBackendParams(self.backends[backend])

    def _backends(self, names):
        return [self._named(name, self.backends, "backend") for name in names]

    @staticmethod
    def _named(name, table, what):
        if name not in table:
            raise bind.nixlInvalidParamError(f"no {what} {name!r}: there {'is' if len(table) == 1 else 'are'} {', '.join(map(repr, table)) or 'none'}")
        return table[name]

    def _operation(self, name):
        return self._named(name, self.nixl_ops, "operation")

    # ---- memory ----

    def register_memory(self, reg_list, mem_type=None, backends=[]):
        descs = self.get_reg_descs(reg_list, mem_type)
        self.agent.registerMem(descs, self._backends(backends))
        return descs

    def deregister_memory(self, dereg_list, backends=[]):
        self.agent.deregisterMem(dereg_list, self._backends(backends))

    def query_memory(self, reg_list, backend, mem_type=None):
        descs = self.get_reg_descs(reg_list, mem_type)
        if backend not in self.backends:
            raise ValueError(f"Backend '{backend}' not found. Available backends: {list(self.backends)}")
        return self.agent.queryMem(descs, self.backends[backend])

    # ---- transfers ----

    def make_connection(self, remote_agent, backends=[]):
        self.agent.makeConnection(remote_agent, self._backends(backends))

    def prep_xfer_dlist(self, agent_name, xfer_list, mem_type=None, backends=[]):
        descs = self.get_xfer_descs(xfer_list, mem_type)
        chosen = self._backends(backends)
        if agent_name in ("NIXL_INIT_AGENT", ""):
            handle = self.agent.prepXferDlist(descs, chosen)
        else:
            handle = self.agent.prepXferDlist(agent_name, descs, chosen)
        return nixl_prepped_dlist_handle(self.agent, handle)

    def estimate_xfer_cost(self, req_handle):
        duration, margin, method = self.agent.estimateXferCost(_number(req_handle))
        return duration, margin, "ANALYTICAL_BACKEND" if method == bind.NIXL_COST_ANALYTICAL_BACKEND else "UNKNOWN"

    def make_prepped_xfer(self, operation, local_xfer_side, local_indices, remote_xfer_side, remote_indices, notif_msg=b"",
                          backends=[], skip_desc_merge=False):
        handle = self.agent.makeXferReq(self._operation(operation), _number(local_xfer_side), local_indices,
                                        _number(remote_xfer_side), remote_indices, notif_msg, self._backends(backends), skip_desc_merge)
        return nixl_xfer_handle(self.agent, handle)

    def initialize_xfer(self, operation, local_descs, remote_descs, remote_agent, notif_msg=b"", backends=[]):
        handle = self.agent.createXferReq(self._operation(operation), local_descs, remote_descs, remote_agent, notif_msg,
                                          self._backends(backends))
        return nixl_xfer_handle(self.agent, handle)

    @staticmethod
    def _state(status):
        return {bind.NIXL_SUCCESS: "DONE", bind.NIXL_IN_PROG: "PROC"}.get(status, "ERR")

    def transfer(self, handle, notif_msg=b""):
        return self._state(self.agent.postXferReq(_number(handle), notif_msg))

    def check_xfer_state(self, handle):
        return self._state(self.agent.getXferStatus(_number(handle)))

    def get_xfer_telemetry(self, handle):
        return self.agent.getXferTelemetry(_number(handle))

    def query_xfer_backend(self, handle):
        chosen = self.agent.queryXferBackend(_number(handle))
        return next(name for name, backend in self.backends.items() if backend == chosen)

    def release_xfer_handle(self, handle):
        _checked(handle).release()

    def release_dlist_handle(self, handle):
        _checked(handle).release()

    def prep_mem_view(self, dlist, *, backends=None):
        return self.agent.prepMemView(dlist, self._backends(backends or []))

    def release_mem_view(self, mvh):
        self.agent.releaseMemView(mvh)

    # ---- notifications ----

    def get_new_notifs(self, backends=[]):
        return self.agent.getNotifs({}, self._backends(backends))

    def update_notifs(self, backends=[]):
        self.notifs = self.agent.getNotifs(self.notifs, self._backends(backends))
        return self.notifs

    def check_remote_xfer_done(self, remote_agent_name, lookup_tag, backends=[], tag_is_prefix=True):
        waiting = self.update_notifs(backends).get(remote_agent_name, [])
        for index, message in enumerate(waiting):
            if message.startswith(lookup_tag) if tag_is_prefix else lookup_tag in message:
                del waiting[index]
                return True
        return False

    def send_notif(self, remote_agent_name, notif_msg, backend=None):
        self.agent.genNotif(remote_agent_name, notif_msg, None if backend is None else self._named(backend, self.backends, "backend"))

    # ---- metadata ----

    def get_agent_metadata(self):
        return self.agent.getLocalMD()

    def get_partial_agent_metadata(self, descs, inc_conn_info=False, backends=[]):
        return self.agent.getLocalPartialMD(descs, inc_conn_info, self._backends(backends))

    def add_remote_agent(self, metadata):
        return self.agent.loadRemoteMD(metadata)

    def remove_remote_agent(self, agent):
        self.agent.invalidateRemoteMD(agent)

    def send_local_metadata(self, ip_addr="", port=DEFAULT_COMM_PORT):
        self.agent.sendLocalMD(ip_addr, port)

    def send_partial_agent_metadata(self, descs, inc_conn_info=False, backends=[], ip_addr="", port=DEFAULT_COMM_PORT, label=""):
        self.agent.sendLocalPartialMD(descs, inc_conn_info, self._backends(backends), ip_addr, port, label)

    def fetch_remote_metadata(self, remote_agent, ip_addr="", port=DEFAULT_COMM_PORT, label=""):
        self.agent.fetchRemoteMD(remote_agent, ip_addr, port, label)

    def invalidate_local_metadata(self, ip_addr="", port=DEFAULT_COMM_PORT):
        self.agent.invalidateLocalMD(ip_addr, port)

    def check_remote_metadata(self, agent, descs=None):
        wanted = bind.nixlXferDList(bind.DRAM_SEG) if descs is None else descs
        return self.agent.checkRemoteMD(agent, wanted) == bind.NIXL_SUCCESS

    # ---- descriptor lists, from what programs have ----

    def _descs(self, kind, other, descs, mem_type):
        if isinstance(descs, kind):
            return descs
        if isinstance(descs, other):
            logger.error("a %s where a %s is needed", other.__name__, kind.__name__)
            return None
        tensors = [descs] if _is_tensor(descs) else descs if not isinstance(descs, np.ndarray) and len(descs) and _is_tensor(descs[0]) else None
        if tensors is not None:
            return self._of_tensors(kind, tensors)
        is_array = isinstance(descs, np.ndarray)
        if not is_array and not (len(descs) and isinstance(descs[0], tuple)):
            return None
        fits = descs.ndim == 2 and descs.shape[1] == 3 if is_array else len(descs[0]) == kind.WIDTH
        if mem_type is None or not fits:
            logger.error("descriptors need a mem_type" if mem_type is None else "%s takes %s", *([] if mem_type is None else [
                kind.__name__, "an N x 3 array" if is_array else f"tuples of {kind.WIDTH}"]))
            return None
        return kind(self._named(mem_type, self.nixl_mems, "memory type"), descs)

    def _of_tensors(self, kind, tensors):
        if any(tensor.device != tensors[0].device or not tensor.is_contiguous() for tensor in tensors):
            logger.error("tensors of one list are contiguous and on one device")
            return None
        device = tensors[0].get_device()
        rows = [(tensor.data_ptr(), tensor.numel() * tensor.element_size(), max(device, 0)) for tensor in tensors]
        return kind(bind.DRAM_SEG if device == -1 else bind.VRAM_SEG, np.array(rows, np.uint64))

    def get_xfer_descs(self, descs, mem_type=None):
        return self._descs(bind.nixlXferDList, bind.nixlRegDList, descs, mem_type)

    def get_reg_descs(self, descs, mem_type=None):
        return self._descs(bind.nixlRegDList, bind.nixlXferDList, descs, mem_type)

    def get_remote_descs(self, descs, mem_type=None):
        if isinstance(descs, bind.nixlRemoteDList):
            return descs
        return self._descs(bind.nixlRemoteDList, bind.nixlRegDList, descs, mem_type)

    def get_serialized_descs(self, descs):
        return pickle.dumps(descs)

    def deserialize_descs(self, serialized_descs):
        return _Descriptors(io.BytesIO(serialized_descs)).load()
