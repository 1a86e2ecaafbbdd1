"""A decode process: has memory that prefill processes write into, and goes on from there, token by token."""

import asyncio
import sys
import time

import fairway
from model import LAYERS, Model
from pages import Cache, Pages, PrefixCache
from prefixes import Prefixes
from worker import say, serve


class Decode:
    BLOCKS = 256
    LANDED_SECONDS = 3.0  # more than peer_timeout: by then a session that nobody saw begin has ended

    def __init__(self, name, ranks, directory):
        self.engine = fairway.Engine(name=name, directory=directory, peer_timeout=1.0)
        self.pages = Pages(self.BLOCKS, ranks, self.engine, "w")
        for rank, region in enumerate(self.pages.regions):
            self.engine.publish(f"rank {rank}", region)
        self.prefixes = PrefixCache(self.pages)
        self.pool = Prefixes(self.engine, self.pages, directory)
        self.model = Model()
        self.held = {}  # request -> (table, here), from take until its end
        self.dropped = set()  # attempts that failed
        self.first = {}  # attempt -> future of its first token
        self.seen, self.up = set(), set()  # names of engines that have connected, and that are

    async def handle(self, message):
        await getattr(self, message["do"])(message)

    async def take(self, message):
        """Blocks for {request, prompt, count}. Answers which, and how many of them need not be sent."""
        while (taken := self.prefixes.take(message["prompt"], message["count"])) is None:
            await asyncio.sleep(0.005)  # others end and give theirs back
        table, own = taken
        here = await self.pool.get(message["prompt"], table, own)
        self.held[message["request"]] = table, own, here
        say(request=message["request"], table=[int(block) for block in table], here=here)

    async def go_on(self, message):
        """{request, attempt, prompt, count, expected}: waits for `expected` notifications of the attempt, then decodes."""
        attempt, arrived = message["attempt"], []
        table, own, here = self.held[message["request"]]
        per_layer = message["expected"] // LAYERS
        first = self.first[attempt] = asyncio.get_running_loop().create_future()
        while len(arrived) < LAYERS or not first.done():
            count = self.engine.counter(attempt)
            while len(arrived) < (count // per_layer if per_layer else LAYERS):
                arrived.append(("arrived", len(arrived), time.monotonic()))
            if attempt in self.dropped:
                del self.first[attempt]
                return
            await asyncio.sleep(0.0005)
        del self.first[attempt]
        prompt, out, started = message["prompt"], [first.result()], time.monotonic()
        self.prefixes.remember(prompt, table)
        cache = Cache(self.pages, table)
        while len(out) < message["count"]:
            out.append(self.model.decode(out[-1], len(prompt) + len(out) - 1, cache))
            await asyncio.sleep(0)  # others' turn
        self.prefixes.give_back(self.held.pop(message["request"])[0])
        say(request=message["request"], tokens=out, started=started, events=arrived, saved=own, pooled=here - own)

    async def token(self, message):
        """The first token, which the prefill process computed."""
        self.first[message["attempt"]].set_result(message["token"])

    async def drop(self, message):
        """The attempt failed. `prefill`: the engine that had connected and died, or "". What it had on its way cannot land any
        more once its session is over: only then others may write the same blocks."""
        self.dropped.add(message["attempt"])
        name, most = message["prefill"], time.monotonic() + self.LANDED_SECONDS
        while name in self.up or (name and name not in self.seen and time.monotonic() < most):
            await asyncio.sleep(0.002)
        say(dropped=message["attempt"])

    async def watch(self):
        async for event in self.engine.peer_events():
            name = event.peer.name.partition(" ")[0]
            if event.kind == "up":
                self.seen.add(name)
                self.up.add(name)
            elif event.kind == "down":
                self.up.discard(name)
                self.pool.down(event.peer)

    async def run(self):
        say(ready=True, address=self.engine.address, blocks=self.BLOCKS)
        await serve(self.handle, self.watch())


if __name__ == "__main__":
    asyncio.run(Decode(sys.argv[1], int(sys.argv[2]), sys.argv[3]).run())
