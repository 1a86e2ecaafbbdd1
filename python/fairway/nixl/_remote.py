"""A remote agent as one agent knows it: what its metadata say, and its engine once something is to be sent there.

No call here waits for a peer: not for one that is gone, nor for one that lives and reads no notifications."""

import collections
import itertools
import os
import threading
import time

import fairway

from . import _notes
from ._errors import nixlNotFoundError

_GONE = (fairway.PeerDead, fairway.StaleIncarnation, fairway.LinkFailed, fairway.Closed)
_MAY_LIVE = (fairway.StaleIncarnation, fairway.LinkFailed, fairway.Closed)  # a connection ended, and not the agent


class Sent:
    """Notifications under way to the agent of one name, over all connections to it: one that is removed and added anew may read as
    little as before. Any thread may call."""

    UNREAD = 4096  # that may wait for it to read some

    def __init__(self, name):
        self.name = name
        self._rows = collections.deque()  # [(peer, transfer)]
        self._lock = threading.Lock()

    def room(self, count, most=UNREAD):
        """Raises when there is none."""
        with self._lock:
            if len(self._rows) + count > max(most, count):
                raise fairway.QueueFull(f"agent '{self.name}' reads no notifications, and {len(self._rows)} wait for it")

    def add(self, peer, transfers):
        with self._lock:
            self._rows.extend([(peer, transfer) for transfer in transfers])

    def settle(self, peer):
        """Forgets those that have ended. Raises the news that `peer` is gone."""
        with self._lock:
            while self._rows and self._rows[0][1].done:
                over, transfer = self._rows.popleft()
                try:
                    transfer.result()
                except _GONE:
                    if over is peer:
                        raise
                except fairway.Error:
                    pass

    def empty(self):
        self.settle(None)
        return not self._rows


class RemoteAgent:
    """Connected when first needed, and again when its engine or a link to it was lost: metadata are enough to heal. A thread
    connects; what is sent meanwhile is sent once it has. Any thread may call."""

    CONNECT_SECONDS = 5
    GRACE_SECONDS = 0.05  # a caller's, for a peer that lives answers sooner
    RETRY_SECONDS = 1.0  # not more often, while it is known to be gone

    def __init__(self, engine, own_name, name, sent=None):
        self.engine, self.own_name, self.name = engine, own_name, name
        self.address = ""
        self.bell_description = b""
        self.memories = {}  # key -> Memory
        self.peer = self.bell = None
        self.generation = 0  # of the connection and of the memories: what was made of an older one is made anew
        self.failure = None  # why the last attempt, or the last connection, ended
        self._changed = threading.Condition(threading.RLock())  # its lock guards all of this
        self._attempt = None  # the thread that connects
        self._tried = 0.0  # when it began
        self._waiting = []  # [(what to do when connected, what to do with the reason when not)]
        self._sent = sent or Sent(name)
        self._numbers = itertools.count(1)

    def next_number(self):
        return next(self._numbers)

    # ---- what it told ----

    def merge(self, told):
        """More metadata of the same agent. `told.whole`: what they do not name is gone. With another address it is another life
        of it, of which all is new."""
        with self._changed:
            memories = {memory.key(): memory for memory in told.memories}
            another_life = bool(self.address) and bool(told.address) and told.address != self.address
            if told.address and told.address != self.address:
                self._disconnected(None)
                self.address, self.bell_description = told.address, told.bell
            elif told.address and self.bell_description != told.bell:  # restarted at the same place
                self._disconnected(None)
                self.bell_description = told.bell
            self.failure = None
            if told.whole or another_life:
                self.memories = {key: memory for key, memory in self.memories.items() if key in memories}
            for key, memory in memories.items():
                known = self.memories.setdefault(key, memory)
                if known.description != memory.description:  # registered anew: lists that were prepared mean it, too
                    known.description, known.remote = memory.description, None
                    self.generation += 1

    def all_memories(self, type):
        with self._changed:
            return [memory for memory in self.memories.values() if memory.type == type]

    # ---- connecting ----

    def _disconnected(self, why):
        self.peer = self.bell = None
        self.generation += 1
        self.failure = why
        for memory in self.memories.values():
            memory.remote = None

    def disconnected(self, why=None, peer=None):
        """`peer`: only if the connection is still that one."""
        with self._changed:
            if peer is None or peer == self.peer:
                self._disconnected(why)

    def _begin(self):
        if not self.address:
            raise nixlNotFoundError(f"of agent '{self.name}' only descriptors are known: its metadata need its connection info")
        if self._attempt is None:
            self._attempt = threading.Thread(target=self._connect, args=(self.address, self.bell_description), daemon=True)
            self._tried = time.monotonic()
            self._attempt.start()

    def _connect(self, address, bell_description):
        try:
            peer = self.engine.connect(address, self.CONNECT_SECONDS)
            bell = peer.import_region(bell_description)
            # Not waited for: who reads no notifications now gets it before all others.
            self._sent.settle(peer)
            self._sent.room(1, 2 * Sent.UNREAD)  # a connection may be made still, for bytes
            self._sent.add(peer, [self.engine.write(b"\0", bell[0:1], notify=(_notes.IMMEDIATE, _notes.hello(self.own_name)))])
        except Exception as error:
            peer, bell, why = None, None, error
        with self._changed:
            self._attempt = None
            if address != self.address:  # it has told of another life meanwhile
                if self._waiting:
                    self._begin()
                return
            waiting, self._waiting = self._waiting, []
            if peer is None:
                self.failure = why
            else:
                self.peer, self.bell, self.failure = peer, bell, None
                self.generation += 1
            for act, failed in waiting:
                try:
                    act() if peer is not None else failed(why)
                except Exception as error:
                    failed(error)
            self._changed.notify_all()

    def connect(self, seconds):
        """Waits, and raises why not."""
        self.when_connected(lambda: None, lambda error: None)
        end = time.monotonic() + seconds
        with self._changed:
            while self.peer is None:
                if self._attempt is None:
                    raise self.failure or fairway.Unreachable(f"agent '{self.name}' was disconnected")
                if not self._changed.wait(end - time.monotonic()):
                    raise fairway.Unreachable(f"agent '{self.name}' at {self.address} does not answer")

    def when_connected(self, act, failed):
        """act() now, or on a thread once there is a connection; failed(error) there when none can be made. When the agent is known
        to be gone it raises at once, and tries again beside; else it waits for GRACE_SECONDS at the most. Gives what takes the
        action back, as long as it has not begun."""
        with self._changed:
            fresh = False
            if self.peer is not None:
                try:
                    act()
                    return lambda: False
                except _GONE as error:
                    if self.engine.closed:
                        raise
                    self._disconnected(error)
                    fresh = True
            known = self.failure
            if known is None or fresh or time.monotonic() >= self._tried + self.RETRY_SECONDS:
                self._begin()
            if known is not None and not fresh and not isinstance(known, _MAY_LIVE):
                raise known
            self._begin()
            waiting, failures = (act, lambda error: (failures.append(error), failed(error))), []
            self._waiting.append(waiting)
            end = time.monotonic() + self.GRACE_SECONDS
            while any(one is waiting for one in self._waiting) and self._changed.wait(end - time.monotonic()):
                pass
            if failures:
                raise failures[0]
            if known is not None and self._take_back(waiting):
                raise known
            return lambda: self._take_back(waiting)

    def _take_back(self, waiting):
        with self._changed:
            before = len(self._waiting)
            self._waiting = [one for one in self._waiting if one is not waiting]
            return len(self._waiting) < before

    # ---- what is sent there ----

    def region(self, memory):
        """Connected, it never waits."""
        if memory.remote is None:
            memory.remote = self.peer.import_region(memory.description)
        return memory.remote

    def ring(self, piece, after=None):
        """A notification, or a piece of one, without a transfer's bytes."""
        return self.engine.write(b"\0", self.bell[0:1], notify=(_notes.IMMEDIATE, piece), after=after)

    def notify(self, message):
        pieces = _notes.cut(self.next_number(), message)

        def send():
            self._sent.settle(self.peer)
            self._sent.room(len(pieces))
            self._sent.add(self.peer, [self.ring(piece) for piece in pieces])
            self._sent.settle(self.peer)

        self.when_connected(send, lambda error: None)


class OwnAgent(RemoteAgent):
    """The agent as a remote one of its own: a second engine of this process, in which memory is registered once a transfer to
    the agent itself names it."""

    def __init__(self, engine, name, loopback, memory_of):
        super().__init__(engine, name, name)
        self.twin = fairway.Engine(name=name, loopback=loopback, max_regions=engine_regions(), max_transfers=64)
        self.inbox_bell = self.twin.allocate(8, "w")
        self.address, self.bell_description = self.twin.address, self.twin.describe(self.inbox_bell)
        self._memory_of = memory_of
        self._registered = {}  # key -> Region

    def merge(self, told):
        """It knows itself."""

    def region(self, memory):
        key = memory.key()
        if key not in self._registered:
            self._registered[key] = self.twin.register(self._memory_of(*key), "rw")
            memory.description = self.twin.describe(self._registered[key])
        return super().region(memory)

    def add(self, memory):
        with self._changed:
            self.memories.setdefault(memory.key(), memory)

    def drop(self, key):
        """Fenced, or it raises."""
        with self._changed:
            region = self._registered.get(key)
        if region is not None:
            region.deregister()
        with self._changed:
            self._registered.pop(key, None)
            if self.memories.pop(key, None) is not None:
                self.generation += 1


def engine_regions():
    """How many regions an agent may have, and know of others: programs register many. An entry costs 250 bytes."""
    return int(os.environ.get("FAIRWAY_MAX_REGIONS") or 1 << 16)
