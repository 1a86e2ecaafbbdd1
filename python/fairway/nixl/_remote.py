"""A remote agent as one agent knows it: what its metadata say, and its engine once something is to be sent there."""

import threading

import fairway

from . import _metadata, _notes
from ._errors import nixlNotFoundError


class RemoteAgent:
    """Connected when first needed, and again when its engine or a link to it was lost: metadata are enough to heal."""

    CONNECT_SECONDS = 5

    def __init__(self, engine, own_name, name):
        self.engine, self.own_name, self.name = engine, own_name, name
        self.address = ""
        self.bell_description = b""
        self.memories = {}  # key -> Memory
        self.peer = self.bell = None
        self.lock = threading.Lock()  # guards connecting
        self.numbers = 0

    def merge(self, address, bell, memories):
        """More metadata of the same agent; of a restarted one, with another address, all of it is new."""
        if address and address != self.address:
            self.disconnected()
            if self.address:
                self.memories.clear()
            self.address, self.bell_description = address, bell
        for memory in memories:
            self.memories.setdefault(memory.key(), memory)

    def connect(self):
        with self.lock:
            if self.peer is not None:
                return self.peer
            if not self.address:
                raise nixlNotFoundError(f"of agent '{self.name}' only descriptors are known: its metadata need its connection info")
            peer = self.engine.connect(self.address, self.CONNECT_SECONDS)
            bell = peer.import_region(self.bell_description)
            self.engine.write(b"\0", bell[0:1], notify=(_notes.IMMEDIATE, _notes.hello(self.own_name))).wait(self.CONNECT_SECONDS)
            self.peer, self.bell = peer, bell
            return peer

    def disconnected(self):
        self.peer = self.bell = None
        for memory in self.memories.values():
            memory.remote = None

    def heal(self, call):
        """call(), and once more on a new connection when the old one turns out to be gone."""
        try:
            self.connect()
            return call()
        except (fairway.PeerDead, fairway.StaleIncarnation, fairway.Closed):
            if self.engine.closed:
                raise
            self.disconnected()
            self.connect()
            return call()

    def find(self, type, address, length):
        for memory in self.memories.values():
            if memory.type == type and memory.address <= address and address + length <= memory.address + memory.length:
                return memory
        raise nixlNotFoundError(f"agent '{self.name}' told of no registered memory with {length} bytes at {address:#x}")

    def region(self, memory):
        if memory.remote is None:
            memory.remote = self.connect().import_region(memory.description)
        return memory.remote

    def notify(self, message, after=None):
        """A notification without a transfer's bytes."""
        self.numbers += 1
        sent = None
        for piece in _notes.cut(self.numbers, message):
            sent = self.engine.write(b"\0", self.bell[0:1], notify=(_notes.IMMEDIATE, piece), after=after)
        return sent


    def notify_soon(self, message):
        """Does not wait for a peer that reads its notifications slowly, only for the news that it is gone."""
        try:
            self.notify(message).wait(0.05)
        except fairway.TimedOut:
            pass


def load(agents, engine, own_name, data):
    name, address, bell, memories = _metadata.unpack(data)
    if name not in agents:
        agents[name] = RemoteAgent(engine, own_name, name)
    agents[name].merge(address, bell, memories)
    return name
