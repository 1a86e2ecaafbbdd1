"""nixlAgent, as NIXL's compiled module has it: one engine, its registered memory, the remote agents, the transfers."""

import ctypes
import itertools
import os
import threading

import fairway

from . import _listener, _metadata, _notes, _remote
from . import _types as bind
from ._errors import (in_nixls_words, nixlInvalidParamError, nixlNoTelemetryError, nixlNotAllowedError, nixlNotFoundError,
                      nixlNotPostedError, nixlNotSupportedError, nixlRepostActiveError, nixl_status_t)
from ._lists import checked_list, nixl_mem_t
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
        options = {key: value for key, value in options.items() if value}
        regions = _remote.engine_regions()
        self.loopback = fairway.Loopback()  # joins it to the engine of an agent's transfers to itself
        self.engine = fairway.Engine(name=name, max_transfers=16384, max_regions=regions, max_remote_regions=regions, loopback=self.loopback, **options)
        self.lock = threading.RLock()  # guards the tables below; held for no call that waits
        self.bell = self.engine.allocate(8, "w")  # notifications without a transfer are written here
        self.telemetry = self._telemetry(config)
        self.backends = {}
        self.regions = {}  # (type, address, length, device) -> [Region, times registered]
        self.remotes = {}
        self.sent = {}  # name -> what is under way to that agent, also to one that was removed
        self.own = None  # the OwnAgent, once a call names this agent as a remote one
        self.inbox, self.own_inbox = _notes.Inbox(), _notes.Inbox()
        self.handles = {}
        self.numbers = itertools.count(1)
        self.listener = None
        if config.useListenThread:
            self.listener = _listener.Listener(config.listenPort, self._answer)

    def __del__(self):
        if getattr(self, "listener", None):
            self.listener.close()
        if getattr(self, "own", None) is not None:
            self.own.twin.close()
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
                with self.lock:
                    if key in self.regions:
                        self.regions[key][1] += 1
                    else:
                        self.regions[key] = [self.engine.register(self._memory(*key), "rw"), 1]
                        if self.own is not None:
                            self.own.add(_metadata.Memory(*key, b""))
                made.append(key)
        except Exception:
            for key in made:
                self._deregister(key)
            raise
        return nixl_status_t.NIXL_SUCCESS

    @staticmethod
    def _rows(descs):
        return checked_list(descs).as_array().tolist()

    def _registered(self, descs):
        keys = [(int(checked_list(descs).getType()), *row) for row in self._rows(descs)]
        with self.lock:
            missing = next((key for key in keys if key not in self.regions), None)
        if missing is not None:
            raise nixlNotFoundError(f"{missing[2]} bytes at {missing[1]:#x} are not registered")
        return keys

    def registered(self, type):
        """(key, Region) of all memory of that type."""
        with self.lock:
            return [(key, held[0]) for key, held in self.regions.items() if key[0] == type]

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
        with self.lock:
            held = self.regions.get(key)
            if held is not None and held[1] > 1:
                held[1] -= 1
                return
        if held is None:
            return  # another thread has
        if self.own is not None:
            self.own.drop(key)
        held[0].deregister()  # fenced, or it raises and stays registered
        with self.lock:
            if self.regions.get(key) is held:
                del self.regions[key]

    def queryMem(self, descs, backend):
        raise nixlNotSupportedError("queryMem is of plugins for files and objects, which Fairway does not have")

    # ---- metadata ----

    def _memories(self, keys=None):
        with self.lock:
            return [_metadata.Memory(*key, self.engine.describe(self.regions[key][0])) for key in (self.regions if keys is None else keys)]

    @in_nixls_words
    def getLocalMD(self):
        return _metadata.pack(self.name, self.engine.address, self.engine.describe(self.bell), self._memories(), whole=True)

    @in_nixls_words
    def getLocalPartialMD(self, descs, inc_conn_info, backends=()):
        keys = self._registered(descs)
        address = self.engine.address if inc_conn_info else ""
        return _metadata.pack(self.name, address, self.engine.describe(self.bell), self._memories(keys))

    @in_nixls_words
    def loadRemoteMD(self, data):
        told = _metadata.unpack(data)
        with self.lock:
            if told.name != self.name and told.name not in self.remotes:
                self.sent = {name: sent for name, sent in self.sent.items() if name == told.name or name in self.remotes or not sent.empty()}
                sent = self.sent.setdefault(told.name, _remote.Sent(told.name))
                self.remotes[told.name] = _remote.RemoteAgent(self.engine, self.name, told.name, sent)
            remote = self._remote(told.name)
        remote.merge(told)
        return told.name.encode()

    def _remote(self, name):
        if isinstance(name, bytes):
            name = name.decode()
        with self.lock:
            if name == self.name and name not in self.remotes:
                self.remotes[name] = self._own()
            if name not in self.remotes:
                raise nixlNotFoundError(f"no remote agent '{name}': add_remote_agent() its metadata first")
            return self.remotes[name]

    def _own(self):
        if self.own is None:
            self.own = _remote.OwnAgent(self.engine, self.name, self.loopback, self._memory)
            for key in self.regions:
                self.own.add(_metadata.Memory(*key, b""))
        return self.own

    @in_nixls_words
    def invalidateRemoteMD(self, name):
        with self.lock:
            remote = self.remotes.pop(self._remote(name).name)
            requests = [held for held in self.handles.values() if isinstance(held, Request) and held.remote is remote]
        for request in requests:
            request.stop()
        remote.disconnected()

    def checkRemoteMD(self, name, descs):
        try:
            remote = self._remote(name)
            if not remote.address:
                return nixl_status_t.NIXL_ERR_NOT_FOUND
            Prepared.far(remote, checked_list(descs))
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
            with self.lock:
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
        self._remote(name).connect(_remote.RemoteAgent.CONNECT_SECONDS)

    # ---- descriptor lists and transfers ----

    def _keep(self, held):
        number = next(self.numbers)
        with self.lock:
            self.handles[number] = held
        return number

    def _held(self, number, kind):
        with self.lock:
            held = self.handles.get(number)
        if not isinstance(held, kind):
            raise nixlInvalidParamError(f"{number:#x} is no handle of a {kind.__name__.lower()} of agent '{self.name}', or it was released")
        return held

    @in_nixls_words
    def prepXferDlist(self, *arguments):
        name, descs = arguments[:2] if isinstance(arguments[0], (str, bytes)) else ("", arguments[0])
        if descs is None or checked_list(descs).isEmpty():
            raise nixlInvalidParamError("a descriptor list is empty")
        return self._keep(Prepared.local(self, descs) if not name else Prepared.far(self._remote(name), descs))

    @in_nixls_words
    def makeXferReq(self, operation, local, local_indices, far, far_indices, notif=b"", backends=(), skip_merge=False):
        here, there = self._held(local, Prepared), self._held(far, Prepared)
        return self._keep(Request(self, operation, here, local_indices, there, far_indices, notif))

    @in_nixls_words
    def createXferReq(self, operation, local_descs, remote_descs, name, notif=b"", backends=()):
        if local_descs is None or remote_descs is None or checked_list(local_descs).descCount() != checked_list(remote_descs).descCount():
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
        self._release(number)
        return nixl_status_t.NIXL_SUCCESS

    def _release(self, number):
        with self.lock:
            self.handles.pop(number, None)

    def releasedDlistH(self, number):
        self._held(number, Prepared)
        self._release(number)
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
        request.remote.connect(_remote.RemoteAgent.CONNECT_SECONDS)
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
        self._remote(name).notify(_notes.to_bytes(message))

    @in_nixls_words
    def getNotifs(self, found=None, backends=()):
        found = dict(found or {})
        self._take_notes(self.engine, self.inbox, found)
        with self.lock:
            own = self.own
        if own is not None:
            self._take_notes(own.twin, self.own_inbox, found)
        return found

    def _take_notes(self, engine, inbox, found):
        gone = []
        for event in engine.poll_peer_events():
            if event.kind == "down":
                gone.append(event.peer.id)
                with self.lock:
                    remotes = list(self.remotes.values())
                for remote in remotes:
                    remote.disconnected(event.reason, event.peer)
        with self.lock:  # one of several threads that ask puts messages together
            while notes := engine.poll_notifications(256):
                for note in notes:
                    if note.immediate == _notes.IMMEDIATE:
                        for name, message in inbox.take(note.peer.id, note.message):
                            found.setdefault(name, []).append(message)
            for peer in gone:  # its last words have been read
                inbox.forget(peer)

    def prepMemView(self, descs, backends=()):
        raise nixlNotSupportedError("views for kernels are Engine.map's in Fairway (docs/cuda.md), not of this API")

    def releaseMemView(self, view):
        raise nixlNotSupportedError("there are no memory views here")
