"""nixlAgent, as NIXL's compiled module has it: one engine, its registered memory, the remote agents, the transfers."""

import ctypes
import itertools
import os

import fairway

from . import _listener, _metadata, _notes, _remote
from . import _types as bind
from ._errors import (in_nixls_words, nixlInvalidParamError, nixlNoTelemetryError, nixlNotAllowedError, nixlNotFoundError,
                      nixlNotPostedError, nixlNotSupportedError, nixlRepostActiveError, nixl_status_t)
from ._lists import nixl_mem_t
from ._transfers import Prepared, Request

_PLUGINS = ("UCX", "FAIRWAY")  # what asks for UCX, NIXL's default, gets Fairway: the tests and examples all do
_MEMORIES = {nixl_mem_t.DRAM_SEG: "DRAM_SEG", nixl_mem_t.VRAM_SEG: "VRAM_SEG"}


class _Vram:
    """A GPU's memory by address."""

    def __init__(self, address, length):
        self.__cuda_array_interface__ = {"shape": (length,), "typestr": "|u1", "data": (address, False), "version": 3}


class nixlAgent:
    def __init__(self, name, config):
        if not isinstance(name, str):
            raise TypeError(f"an agent's name is a str, not {type(name).__name__}")
        if not name or len(name.encode()) > 200:
            raise ValueError("an agent's name has 1 to 200 bytes")
        self.name = name
        options = {"listen": os.environ.get("FAIRWAY_LISTEN"), "job_key": os.environ.get("FAIRWAY_JOB_KEY")}
        self.engine = fairway.Engine(name=name, max_transfers=16384, **{key: value for key, value in options.items() if value})
        self.bell = self.engine.allocate(8, "w")  # notifications without a transfer are written here
        self.telemetry = self._telemetry(config)
        self.backends = {}
        self.regions = {}  # (type, address, length, device) -> [Region, times registered]
        self.remotes = {}
        self.inbox = _notes.Inbox()
        self.handles = {}
        self.numbers = itertools.count(1)
        self.listener = None
        if config.useListenThread:
            self.listener = _listener.Listener(config.listenPort, self._answer)

    def __del__(self):
        if getattr(self, "listener", None):
            self.listener.close()
        if getattr(self, "engine", None) is not None:
            self.engine.close()

    @staticmethod
    def _telemetry(config):
        wanted = os.environ.get("NIXL_TELEMETRY_ENABLE")
        if wanted is None:
            return config.captureTelemetry
        return wanted.lower() in ("y", "yes", "1", "on", "true")

    # ---- plugins and backends ----

    def getAvailPlugins(self):
        return list(_PLUGINS)

    def getPluginParams(self, plugin):
        if plugin not in _PLUGINS:
            raise nixlNotFoundError(f"no plugin '{plugin}': Fairway takes the place of {' and '.join(_PLUGINS)}, other plugins (files, objects) have none")
        return {}, list(_MEMORIES.values())

    def createBackend(self, plugin, params):
        self.getPluginParams(plugin)
        return self.backends.setdefault(plugin, len(self.backends) + 1)

    def getBackendParams(self, backend):
        if backend not in self.backends.values():
            raise nixlNotFoundError(f"no backend {backend}")
        return {}, list(_MEMORIES.values())

    # ---- memory ----

    @in_nixls_words
    def registerMem(self, descs, backends=()):
        made = []
        try:
            for address, length, device in self._rows(descs):
                key = (int(descs.getType()), address, length, device)
                if key in self.regions:
                    self.regions[key][1] += 1
                else:
                    self.regions[key] = [self.engine.register(self._memory(*key), "rw"), 1]
                made.append(key)
        except Exception:
            for key in made:
                self._deregister(key)
            raise
        return nixl_status_t.NIXL_SUCCESS

    @staticmethod
    def _rows(descs):
        if descs is None:
            raise TypeError("no descriptor list: the log says why the descriptors that were given are none")
        return descs.as_array().tolist()

    def _registered(self, descs):
        rows = self._rows(descs)
        keys = [(int(descs.getType()), *row) for row in rows]
        for key in keys:
            if key not in self.regions:
                raise nixlNotFoundError(f"{key[2]} bytes at {key[1]:#x} are not registered")
        return keys

    @staticmethod
    def _memory(type, address, length, device):
        if address == 0 or length == 0:
            raise nixlInvalidParamError(f"a descriptor names {length} bytes at {address:#x}")
        if type == nixl_mem_t.DRAM_SEG:
            return (ctypes.c_char * length).from_address(address)
        if type == nixl_mem_t.VRAM_SEG:
            return _Vram(address, length)
        raise nixlNotSupportedError(f"Fairway moves memory: {nixl_mem_t(type).name} is of plugins that it does not have")

    @in_nixls_words
    def deregisterMem(self, descs, backends=()):
        for key in self._registered(descs):
            self._deregister(key)
        return nixl_status_t.NIXL_SUCCESS

    def _deregister(self, key):
        held = self.regions[key]
        if held[1] == 1:
            held[0].deregister()  # fenced, or it raises and stays registered
            del self.regions[key]
        else:
            held[1] -= 1

    def queryMem(self, descs, backend):
        raise nixlNotSupportedError("queryMem is of plugins for files and objects, which Fairway does not have")

    # ---- metadata ----

    def _memories(self, keys):
        return [_metadata.Memory(*key, self.engine.describe(self.regions[key][0])) for key in keys]

    @in_nixls_words
    def getLocalMD(self):
        return _metadata.pack(self.name, self.engine.address, self.engine.describe(self.bell), self._memories(list(self.regions)))

    @in_nixls_words
    def getLocalPartialMD(self, descs, inc_conn_info, backends=()):
        keys = self._registered(descs)
        address = self.engine.address if inc_conn_info else ""
        return _metadata.pack(self.name, address, self.engine.describe(self.bell), self._memories(keys))

    @in_nixls_words
    def loadRemoteMD(self, data):
        return _remote.load(self.remotes, self.engine, self.name, data).encode()

    def _remote(self, name):
        if isinstance(name, bytes):
            name = name.decode()
        if name == self.name and name not in self.remotes:
            self.loadRemoteMD(self.getLocalMD())
        if name not in self.remotes:
            raise nixlNotFoundError(f"no remote agent '{name}': add_remote_agent() its metadata first")
        return self.remotes[name]

    @in_nixls_words
    def invalidateRemoteMD(self, name):
        remote = self._remote(name)
        for handle in self.handles.values():
            if isinstance(handle, Request) and handle.remote is remote:
                handle.stop()
        del self.remotes[remote.name]
        remote.disconnected()

    def checkRemoteMD(self, name, descs):
        try:
            remote = self._remote(name)
            if not remote.address:
                return nixl_status_t.NIXL_ERR_NOT_FOUND
            for address, length, _ in descs.as_array().tolist():
                remote.find(int(descs.getType()), address, length)
        except nixlNotFoundError:
            return nixl_status_t.NIXL_ERR_NOT_FOUND
        return nixl_status_t.NIXL_SUCCESS

    def _answer(self, what, body):
        """Another agent's words to the listener, on its thread."""
        if what == _listener.SEND:
            self.loadRemoteMD(body)
        elif what == _listener.FETCH:
            return self.getLocalMD()
        elif what == _listener.INVALIDATE:
            self.remotes.pop(body.decode(), None)
        return b""

    @in_nixls_words
    def sendLocalMD(self, host, port):
        _listener.ask(host, port, _listener.SEND, self.getLocalMD())

    def sendLocalPartialMD(self, descs, inc_conn_info, backends, host, port, label=""):
        _listener.ask(host, port, _listener.SEND, self.getLocalPartialMD(descs, inc_conn_info, backends))

    def fetchRemoteMD(self, name, host, port, label=""):
        loaded = self.loadRemoteMD(_listener.ask(host, port, _listener.FETCH, b"")).decode()
        if loaded != name:
            raise nixlNotFoundError(f"the agent at {host}:{port} is '{loaded}', not '{name}'")

    def invalidateLocalMD(self, host, port):
        try:
            _listener.ask(host, port, _listener.INVALIDATE, self.name.encode())
        except _listener.Gone:
            pass  # an agent that has ended knows nothing of us any more; programs say goodbye to such, as NIXL lets them

    @in_nixls_words
    def makeConnection(self, name, backends=()):
        remote = self._remote(name)
        remote.heal(lambda: None)

    # ---- descriptor lists and transfers ----

    def _keep(self, held):
        number = next(self.numbers)
        self.handles[number] = held
        return number

    def _held(self, number, kind):
        held = self.handles.get(number)
        if not isinstance(held, kind):
            raise nixlInvalidParamError(f"{number:#x} is no handle of a {kind.__name__.lower()} of agent '{self.name}', or it was released")
        return held

    @in_nixls_words
    def prepXferDlist(self, *arguments):
        name, descs = arguments[:2] if isinstance(arguments[0], (str, bytes)) else ("", arguments[0])
        if descs is None or descs.isEmpty():
            raise nixlInvalidParamError("a descriptor list is empty")
        return self._keep(Prepared.local(self, descs) if not name else Prepared.far(self._remote(name), descs))

    @in_nixls_words
    def makeXferReq(self, operation, local, local_indices, far, far_indices, notif=b"", backends=(), skip_merge=False):
        here, there = self._held(local, Prepared), self._held(far, Prepared)
        return self._keep(Request(self, operation, here, local_indices, there, far_indices, notif))

    @in_nixls_words
    def createXferReq(self, operation, local_descs, remote_descs, name, notif=b"", backends=()):
        if local_descs is None or remote_descs is None or local_descs.descCount() != remote_descs.descCount():
            raise nixlInvalidParamError("the two descriptor lists have different lengths")
        here, there = Prepared.local(self, local_descs), Prepared.far(self._remote(name), remote_descs)
        return self._keep(Request(self, operation, here, None, there, None, notif))

    @in_nixls_words
    def postXferReq(self, number, notif=b""):
        request = self._held(number, Request)
        if request.in_flight():
            raise nixlRepostActiveError("the transfer is still under way: it can be posted again when it is done")
        return request.post(notif)

    @in_nixls_words
    def getXferStatus(self, number):
        return self._held(number, Request).status()

    @in_nixls_words
    def releaseXferReq(self, number):
        request = self._held(number, Request)
        outcome = request.stop()
        if outcome is not None and not outcome.fenced:
            raise nixlNotAllowedError(f"the transfer may still touch this agent's memory, by {outcome.held_by}: release it again later")
        del self.handles[number]
        return nixl_status_t.NIXL_SUCCESS

    def releasedDlistH(self, number):
        self._held(number, Prepared)
        del self.handles[number]
        return nixl_status_t.NIXL_SUCCESS

    def queryXferBackend(self, number):
        self._held(number, Request)
        if not self.backends:
            raise nixlNotFoundError("the agent has no backend")
        return next(iter(self.backends.values()))

    @in_nixls_words
    def estimateXferCost(self, number):
        """(microseconds, margin, method): the bytes over what the links should reach, by the machine's model."""
        request = self._held(number, Request)
        reach = [(link.expected_low, link.expected_high) for link in self.engine.explain(request.made()).links if link.taken]
        low, high = sum(pair[0] for pair in reach), sum(pair[1] for pair in reach)
        if not low or not high:
            raise nixlNotSupportedError("what these links should reach is not known on this machine")
        slow, fast = request.bytes / low * 1e6, request.bytes / high * 1e6
        return int((slow + fast) / 2), int((slow - fast) / 2), bind.NIXL_COST_ANALYTICAL_BACKEND

    def getXferTelemetry(self, number):
        request = self._held(number, Request)
        if not self.telemetry:
            raise nixlNoTelemetryError("telemetry is off: capture_telemetry, or NIXL_TELEMETRY_ENABLE=y before the agent is made")
        if not request.ended:
            raise nixlNotPostedError("the transfer has not ended")
        told = bind.nixlXferTelemetry()
        told.startTime, told.postDuration = int(request.started * 1e6), max(1, int(request.posting * 1e6))
        told.xferDuration = max(told.postDuration, int((request.ended - request.started) * 1e6))
        told.totalBytes, told.descCount = request.bytes, request.count
        return told

    # ---- notifications ----

    @in_nixls_words
    def genNotif(self, name, message, backend=None):
        remote = self._remote(name)
        message = _notes.to_bytes(message)
        remote.heal(lambda: remote.notify_soon(message))

    @in_nixls_words
    def getNotifs(self, found=None, backends=()):
        found, gone = dict(found or {}), []
        for event in self.engine.poll_peer_events():
            if event.kind == "down":
                gone.append(event.peer.id)
                for remote in self.remotes.values():
                    if remote.peer == event.peer:
                        remote.disconnected()
        while True:
            notes = self.engine.poll_notifications(256)
            for note in notes:
                whole = self.inbox.take(note.peer.id, note.message) if note.immediate == _notes.IMMEDIATE else None
                if whole:
                    found.setdefault(whole[0], []).append(whole[1])
            if not notes:
                break
        for peer in gone:  # its last words have been read
            self.inbox.forget(peer)
        return found

    def prepMemView(self, descs, backends=()):
        raise nixlNotSupportedError("views for kernels are Engine.map's in Fairway (docs/cuda.md), not of this API")

    def releaseMemView(self, view):
        raise nixlNotSupportedError("there are no memory views here")
