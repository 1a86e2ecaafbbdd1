"""A pool process: keeps blocks of prompts in host memory for prefill and decode processes.

Peers find it by its name in the directory and get blocks without it: they read its index, then the blocks, then the index
again. An entry that has not changed meanwhile says that the block was whole. To put blocks they say where theirs are; the pool
reads them, and then the word that says that they were still on offer. A full pool gives up the block that was not used for
longest."""

import asyncio
import collections
import struct
import sys

import fairway
import numpy as np
from model import BLOCK, DIM, HEADS, LAYERS
from pages import shape_of
from worker import say, serve

NAME = "pool"
SLOTS = 128
SLOT_SHAPE = (SLOTS, LAYERS, 2, BLOCK, HEADS, DIM)
ENTRY_WORDS = 4  # of 8 bytes: a name of 24 bytes (zeros: none), then how often the slot was written
USED, PUT, TAKEN = 1, 2, 3  # immediates of notifications
OFFERS = 64  # words of a peer's: word i holds the number of the put that may be read
PUT_HEAD, PUT_BLOCK = struct.Struct("<QHHI"), struct.Struct("<24sH")  # number, its word, ranks, blocks of each; then name, block
PUT_MOST = (256 - PUT_HEAD.size) // PUT_BLOCK.size


class Index:
    """Which block is in which slot, as peers read it. Knows no memory but its own."""

    def __init__(self, words):
        self.words = words  # (SLOTS, ENTRY_WORDS) of uint64
        self.slots = collections.OrderedDict()  # name -> slot, the one that was not used for longest first
        self.free = collections.deque(range(len(words)))
        self.filling = set()  # names on their way

    def begin(self, name):
        """A slot to fill with that block; None: it is here or on its way, or all slots are being filled."""
        if name in self.slots or name in self.filling:
            return None
        if not self.free:
            if not self.slots:
                return None
            _, slot = self.slots.popitem(last=False)
            self.words[slot, :3] = 0  # before anything else lands there
            self.free.append(slot)
        self.filling.add(name)
        return self.free.popleft()

    def end(self, name, slot, whole):
        self.filling.discard(name)
        if not whole:
            self.free.append(slot)
            return
        self.words[slot, 3] += 1
        self.words[slot, :3] = np.frombuffer(name, np.uint64)
        self.slots[name] = slot

    def used(self, slot):
        name = self.words[slot, :3].tobytes() if slot < len(self.words) else b""
        if name in self.slots:
            self.slots.move_to_end(name)


class Pool:
    def __init__(self, directory, peer_timeout=1.0):
        self.engine = fairway.Engine(name=NAME, directory=directory, peer_timeout=peer_timeout)
        index = self.engine.allocate(8 * SLOTS * ENTRY_WORDS, "r")
        slots = self.engine.allocate(4 * int(np.prod(SLOT_SHAPE)), "r")
        self.index = Index(np.frombuffer(memoryview(index), np.uint64).reshape(SLOTS, ENTRY_WORDS))
        self.slots = np.frombuffer(memoryview(slots), np.float32).reshape(SLOT_SHAPE)
        self.engine.publish("slots", slots)
        self.engine.publish("index", index)
        self.regions = index, slots
        self.peers = {}  # peer -> (its words of offers, its ranks' arrays)
        self.tasks = set()

    def _look(self, peer, ranks, blocks):
        regions = [peer.lookup(f"rank {rank}") for rank in range(ranks)]
        return peer.lookup("offers"), [region.array(shape_of(blocks, ranks), "float32") for region in regions]

    async def fetch(self, peer, message):
        try:
            number, word, ranks, blocks = PUT_HEAD.unpack_from(message)
            offered = list(PUT_BLOCK.iter_unpack(message[PUT_HEAD.size :]))
            if ranks not in (1, 2, 4) or word >= OFFERS or any(block >= blocks for _, block in offered):
                raise ValueError("no peer of this example says that")
        except (struct.error, ValueError):
            return self.disconnect(peer)
        began, whole = [], False
        for name, block in offered:
            slot = self.index.begin(name)
            if slot is not None:
                began.append((name, slot, block))
        try:
            if peer not in self.peers:
                self.peers[peer] = await asyncio.to_thread(self._look, peer, ranks, blocks)
            offers, arrays = self.peers[peer]
            share = HEADS // ranks
            reads = [fairway.Request.read(self.slots[slot][:, :, :, rank * share : (rank + 1) * share], there[:, :, block])
                     for _, slot, block in began for rank, there in enumerate(arrays)]
            if reads:
                await self.engine.submit(reads)
            still = np.zeros(1, np.uint64)
            await self.engine.read(still, offers[8 * word : 8 * word + 8], notify=(TAKEN, PUT_HEAD.pack(number, word, 0, 0)))
            whole = int(still[0]) == number
        except fairway.Error:
            self.peers.pop(peer, None)
            self.disconnect(peer)  # it waits to hear that nobody reads its blocks
        finally:
            for name, slot, _ in began:
                self.index.end(name, slot, whole)

    def disconnect(self, peer):
        try:
            peer.disconnect()
        except fairway.Error:
            pass  # it is gone

    async def watch(self):
        async for event in self.engine.peer_events():
            if event.kind == "down":
                self.peers.pop(event.peer, None)

    async def listen(self):
        async for note in self.engine.notifications():
            if note.immediate == USED:
                for (slot,) in struct.iter_unpack("<H", note.message):
                    self.index.used(slot)
            elif note.immediate == PUT:
                task = asyncio.create_task(self.fetch(note.peer, note.message))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    async def run(self):
        say(ready=True)
        await serve(lambda message: asyncio.sleep(0), self.listen(), self.watch())


if __name__ == "__main__":
    asyncio.run(Pool(sys.argv[2]).run())
