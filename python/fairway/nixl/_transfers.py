"""Prepared descriptor lists and the transfers between them: one Fairway request each, however many descriptors."""

import time

import fairway
import numpy as np

from . import _types as bind
from . import _notes
from ._errors import nixlInvalidParamError, nixlNotFoundError, nixlNotPostedError, nixl_status_t


class Prepared:
    """Each descriptor as (region, offset, length), in arrays, so that 10^5 of them cost no 10^5 objects."""

    def __init__(self, remote, memories, descs):
        self.remote = remote  # None: this agent's own
        self.memories = memories
        rows = descs.as_array()
        order = sorted(range(len(memories)), key=lambda i: memories[i][0])
        starts = np.array([memories[i][0] for i in order], np.uint64)
        ends = np.array([memories[i][0] + memories[i][1] for i in order], np.uint64)
        found = np.searchsorted(starts, rows[:, 0], side="right").astype(np.int64) - 1 if len(order) else np.full(len(rows), -1)
        inside = found >= 0
        room = ends[found[inside]] - rows[inside, 0]  # wraps around where it starts behind the end
        inside[inside] = (rows[inside, 0] <= ends[found[inside]]) & (rows[inside, 1] <= room)
        for i in np.flatnonzero(~inside):  # regions may lie in each other: then the nearest start is not the one
            address, length, _ = (int(value) for value in rows[i])
            around = [k for k in range(len(order)) if starts[k] <= address and address + length <= ends[k]]
            if not around:
                whose = f"agent '{remote.name}' told of" if remote else "this agent has"
                raise nixlNotFoundError(f"{whose} no registered memory with {length} bytes at {address:#x} (descriptor {i})")
            found[i] = around[0]
        self.region = np.array(order, np.int64)[found] if len(order) else found
        self.offset = (rows[:, 0] - starts[found]).astype(np.int64)
        self.length = rows[:, 1].astype(np.int64)

    @classmethod
    def local(cls, agent, descs):
        own = agent.registered(descs.getType())
        prepared = cls(None, [(key[1], key[2]) for key, _ in own], descs)
        prepared.regions = [region for _, region in own]
        return prepared

    @classmethod
    def far(cls, remote, descs):
        memories = remote.all_memories(descs.getType())
        prepared = cls(remote, [(memory.address, memory.length) for memory in memories], descs)
        prepared.regions = memories
        return prepared

    def pick(self, indices):
        if indices is None:
            return slice(None)
        indices = np.asarray(indices)
        if indices.size == 0 or indices.dtype.kind not in "iu" or indices.ndim != 1:
            raise nixlInvalidParamError("indices are a list or an array of integers, and not empty")
        if indices.min() < 0 or indices.max() >= len(self.region):
            raise nixlInvalidParamError(f"an index is outside of a list of {len(self.region)} descriptors")
        return indices


def joined(table):
    """Rows of [region, offset, remote region, remote offset, length] with those that continue the row before on both sides
    as a part of it: pages that lie in a row on both sides move as one."""
    if len(table) < 2:
        return np.ascontiguousarray(table)
    before, after = table[:-1], table[1:]
    goes_on = (before[:, 0] == after[:, 0]) & (before[:, 2] == after[:, 2])
    goes_on &= (before[:, 1] + before[:, 4] == after[:, 1]) & (before[:, 3] + before[:, 4] == after[:, 3])
    first = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    rows = table[first]
    rows[:, 4] = np.add.reduceat(table[:, 4], first)
    return np.ascontiguousarray(rows)


class Request:
    """What makeXferReq and createXferReq give: posted once or many times, one at a time."""

    def __init__(self, agent, operation, here, local_indices, there, far_indices, notif):
        if here.remote is not None or there.remote is None:
            raise nixlInvalidParamError("a transfer is from a local list (NIXL_INIT_AGENT) to a remote agent's")
        mine, far = here.pick(local_indices), there.pick(far_indices)
        lengths = here.length[mine]
        if len(lengths) != len(there.length[far]) or (lengths != there.length[far]).any():
            raise nixlInvalidParamError("the two sides' descriptors differ in count or lengths")
        self.agent, self.remote = agent, there.remote
        self.operation = "write" if operation == bind.NIXL_WRITE else "read"
        self.locals, self.memories = here.regions, there.regions
        self.table = joined(np.stack([here.region[mine], here.offset[mine], there.region[far], there.offset[far], lengths], axis=1))
        self.used = np.unique(self.table[:, 2]).tolist()
        self.notif = _notes.to_bytes(notif)
        self.count, self.bytes = len(lengths), int(lengths.sum())
        self.transfer = self.request = self.peer = None
        self.tail = None  # the last piece of a notification that is longer than one
        self.take_back = None  # of one that is posted and waits for a connection
        self.error = None  # why there was none
        self.generation = -1
        self.started = self.posting = self.ended = 0.0

    def made(self, pieces=()):
        """The Fairway request, on the remote agent's present connection, which there is."""
        if self.request is None or self.generation != self.remote.generation or pieces:
            # Only those that are used are imported; a list keeps the others' places.
            first = self.remote.region(self.memories[self.used[0]])
            far = [first] * len(self.memories)
            for index in self.used:
                far[index] = self.remote.region(self.memories[index])
            notify = (_notes.IMMEDIATE, pieces[0]) if pieces else None
            made = fairway.Request.extents(self.operation, self.locals, far, self.table, notify=notify)
            if pieces:
                return made
            self.request, self.generation = made, self.remote.generation
        return self.request

    def post(self, notif=b""):
        message = _notes.to_bytes(notif) or self.notif
        self.started, self.ended, self.tail, self.transfer, self.error = time.time(), 0.0, None, None, None
        pieces = _notes.cut(self.remote.next_number(), message) if message else []
        self.take_back = lambda: False
        try:
            self.take_back = self.remote.when_connected(lambda: self._submit(pieces), self._fail)
        except Exception:
            self.take_back = None
            raise
        self.posting = time.time() - self.started
        return self.status()

    def _submit(self, pieces):
        transfer = self.agent.engine.submit([self.made(pieces)])
        for piece in pieces[1:]:
            self.tail = self.remote.ring(piece, self.tail or transfer)
        self.peer, self.transfer = self.remote.peer, transfer

    def _fail(self, error):
        self.error = error

    def in_flight(self):
        if self.transfer is None:
            return self.take_back is not None and self.error is None
        return not (self.transfer.done and (self.tail is None or self.tail.done))

    def status(self):
        """Raises what went wrong, in NIXL's words, as NIXL does."""
        if self.transfer is None and self.take_back is None:
            raise nixlNotPostedError("the transfer was not posted")
        if self.in_flight():
            return nixl_status_t.NIXL_IN_PROG
        self.ended = self.ended or time.time()
        if self.error is not None:
            raise self.error
        try:
            self.transfer.result()
        except (fairway.PeerDead, fairway.StaleIncarnation, fairway.LinkFailed, fairway.Closed) as error:
            self.remote.disconnected(error, self.peer)  # the next transfer connects again
            raise
        return nixl_status_t.NIXL_SUCCESS

    def stop(self):
        """Ends what is in flight: afterwards nothing touches this agent's memory, or the answer says who may."""
        if self.transfer is None and self.take_back is not None and self.take_back():
            self.take_back = None
        if self.transfer is None or not self.in_flight():
            return None
        outcome = self.transfer.cancel()
        if self.tail is not None:
            self.tail.cancel()
        return outcome
