"""What prefill and decode processes do with the pool: get blocks of a prompt into their pages, put theirs. Where the pool cannot
be reached there is nothing to get, and nothing waits for it."""

import asyncio
import itertools
import struct
import time

import fairway
import numpy as np
import pool
from model import HEADS
from pages import names_of


class Prefixes:
    DEADLINE = 0.5  # seconds for what is asked of the pool
    PAUSE = 0.2  # seconds until one that could not be reached is tried again

    def __init__(self, engine, pages, directory):
        self.engine, self.pages = engine, pages
        self.again = 0.0 if directory else float("inf")
        self.connecting = None
        self.far = None  # (the pool's engine, its index, its slots)
        self.numbers = itertools.count(1)
        self.region = engine.allocate(8 * pool.OFFERS, "r")
        self.offers = np.frombuffer(memoryview(self.region), np.uint64)
        engine.publish("offers", self.region)
        self.lent = {}  # word -> (the pool's engine, future of the end of what it offers)

    def _reach(self):
        if self.far is None and self.connecting is None and time.monotonic() >= self.again:
            self.connecting = asyncio.create_task(self._connect())
        return self.far

    async def _connect(self):
        try:
            self.far = await asyncio.to_thread(self._look)
        except fairway.Error:
            self.again = time.monotonic() + self.PAUSE
        self.connecting = None

    def _look(self):
        peer = self.engine.connect(pool.NAME, timeout=1.0)
        index, slots = peer.lookup("index", timeout=1.0), peer.lookup("slots", timeout=1.0)
        return peer, index.array((pool.SLOTS, pool.ENTRY_WORDS), "uint64"), slots.array(pool.SLOT_SHAPE, "float32")

    def down(self, peer):
        """That peer's session is over."""
        if self.far is not None and self.far[0] == peer:
            self.far = None
        for borrower, end in self.lent.values():
            if borrower == peer and not end.done():
                end.set_result(None)

    def told(self, note):
        """A notification that may be the pool's: it has read what it wanted."""
        if note.immediate == pool.TAKEN:
            number, word, _, _ = pool.PUT_HEAD.unpack(note.message)
            if word in self.lent and int(self.offers[word]) == number and not self.lent[word][1].done():
                self.lent[word][1].set_result(None)

    async def _entries(self, index, **options):
        words = np.empty((pool.SLOTS, pool.ENTRY_WORDS), np.uint64)
        await self.engine.read(words, index, deadline=self.DEADLINE, **options)
        return words

    async def get(self, prompt, table, here):
        """Blocks after the first `here` that are there already; gives how many are there then. table: pages of the prompt."""
        names = list(names_of(prompt))
        far = self._reach()
        if far is None or here >= len(names):
            return here
        try:
            before = await self._entries(far[1])
            found = {row[:3].tobytes(): slot for slot, row in enumerate(before)}
            slots = []
            for name in names[here:]:
                if name not in found:
                    break
                slots.append(found[name])
            if not slots:
                return here
            await self.engine.submit(list(self._reads(far[2], slots, table[here:])))
            after = await self._entries(far[1], notify=(pool.USED, b"".join(struct.pack("<H", slot) for slot in slots)))
            same = [(before[slot] == after[slot]).all() for slot in slots]
            return here + (same.index(False) if False in same else len(same))
        except fairway.Error:
            self.far = None
            return here

    def _reads(self, far, slots, table):
        share = HEADS // self.pages.ranks
        for slot, block in zip(slots, table):
            for rank, array in enumerate(self.pages.arrays):
                yield fairway.Request.read(array[:, :, block], far[slot, :, :, :, rank * share : (rank + 1) * share], deadline=self.DEADLINE)

    async def put(self, prompt, table):
        """Offers the prompt's whole blocks; returns when nobody reads them any more."""
        far = self._reach()
        if far is None:
            return
        try:
            known = {row[:3].tobytes() for row in await self._entries(far[1])}
        except fairway.Error:
            return
        offered = [one for one in zip(names_of(prompt), table) if one[0] not in known]
        parts = [offered[first : first + pool.PUT_MOST] for first in range(0, len(offered), pool.PUT_MOST)]
        await asyncio.gather(*(self._offer(far, part) for part in parts))

    async def _offer(self, far, blocks):
        word = next((word for word in range(pool.OFFERS) if word not in self.lent), None)
        if word is None:
            return
        end = asyncio.get_running_loop().create_future()
        self.lent[word] = far[0], end
        self.offers[word] = number = next(self.numbers)
        message = pool.PUT_HEAD.pack(number, word, self.pages.ranks, self.pages.blocks)
        message += b"".join(pool.PUT_BLOCK.pack(*one) for one in blocks)
        try:
            await self.engine.read(np.empty(pool.ENTRY_WORDS, np.uint64), far[1][0], notify=(pool.PUT, message))
            await end
        except fairway.Error:
            pass
        finally:
            self.offers[word] = 0  # what is read from here on is not kept
            del self.lent[word]
