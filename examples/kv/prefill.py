"""A prefill process: computes prompts, from where the pool's blocks end, and sends each layer's pages to the decoder as soon as
they are computed."""

import asyncio
import sys
import time

import fairway
from model import BLOCK, HEADS, Model
from pages import Cache, Pages, shape_of
from prefixes import Prefixes
from worker import say, serve


class Prefill:
    BLOCKS = 256

    def __init__(self, name, ranks, directory):
        self.engine = fairway.Engine(name=name, directory=directory, peer_timeout=1.0)
        self.pages = Pages(self.BLOCKS, ranks, self.engine, "r")
        for rank, region in enumerate(self.pages.regions):
            self.engine.publish(f"rank {rank}", region)
        self.pool = Prefixes(self.engine, self.pages, directory)
        self.model = Model()
        self.returning = set()  # tasks that give pages back
        self.decoders = {}  # address -> its memory, one array for each of its ranks

    def decoder(self, address, ranks, blocks):
        if address not in self.decoders:
            say(connected=address)  # from now on the decoder may hear of us
            peer = self.engine.connect(address)
            regions = [peer.lookup(f"rank {rank}") for rank in range(ranks)]
            self.decoders[address] = [region.array(shape_of(blocks, ranks), "float32") for region in regions]
        return self.decoders[address]

    def requests_of_layer(self, layer, mine, theirs, far, counter):
        """The pages of one layer, from our ranks' memory into theirs: whole pages where the heads are cut alike, else strided
        pieces of them, and no copy in between either way."""
        share, far_share = HEADS // self.pages.ranks, HEADS // len(far)
        for rank, array in enumerate(self.pages.arrays):
            for far_rank, there in enumerate(far):
                first = max(rank * share, far_rank * far_share)
                heads = min((rank + 1) * share, (far_rank + 1) * far_share) - first
                if heads <= 0:
                    continue
                here, at = slice(first - rank * share, first - rank * share + heads), first - far_rank * far_share
                for block, far_block in zip(mine, theirs):
                    yield fairway.Request.write(
                        array[layer, :, block, :, here], there[layer, :, far_block, :, at : at + heads], notify=fairway.counter(counter)
                    )

    async def handle(self, message):
        """{attempt, prompt, decoder, ranks, blocks, table, here, layerwise}: the first `here` blocks need not be sent."""
        prompt, events = message["prompt"], []
        needed = (len(prompt) + BLOCK - 1) // BLOCK
        while len(self.pages.free) < needed:
            await asyncio.sleep(0.002)
        table = [self.pages.free.popleft() for _ in range(needed)]
        mine, theirs = table[message["here"] :], message["table"][message["here"] : len(table)]
        transfers, waiting, computed = [], [], False
        try:
            far = self.decoder(message["decoder"], message["ranks"], message["blocks"])
            cache = Cache(self.pages, table)
            skipped = await self.pool.get(prompt, table, 0)

            def send(layer):
                requests = list(self.requests_of_layer(layer, mine, theirs, far, message["attempt"]))
                if requests:
                    transfers.append(self.engine.submit(requests))
                events.append(("sent", layer, time.monotonic()))  # on their way; "arrived" is the decoder's word

            def on_layer(layer):
                events.append(("computed", layer, time.monotonic()))
                if message.get("layerwise", True):
                    send(layer)
                else:
                    waiting.append(layer)

            token = self.model.prefill(prompt, cache, on_layer, skipped * BLOCK)
            computed = True
            for layer in waiting:
                send(layer)
            for transfer in transfers:
                await transfer
            say(attempt=message["attempt"], token=token, events=events, skipped=skipped)
        except fairway.Error as error:
            self.decoders.pop(message["decoder"], None)
            await asyncio.gather(*(self.end_of(transfer) for transfer in transfers))  # before anybody else may write there
            say(attempt=message["attempt"], failed=str(error))
        finally:
            await asyncio.gather(*(self.end_of(transfer) for transfer in transfers))
            giving = asyncio.create_task(self.give_back(prompt if computed else [], table))
            self.returning.add(giving)
            giving.add_done_callback(self.returning.discard)

    async def give_back(self, prompt, table):
        """The pool may have them first; no transfer of ours reads them any more."""
        try:
            await self.pool.put(prompt, table)
        finally:
            self.pages.free.extend(table)

    async def listen(self):
        async for note in self.engine.notifications():
            self.pool.told(note)

    async def watch(self):
        async for event in self.engine.peer_events():
            if event.kind == "down":
                self.pool.down(event.peer)

    async def end_of(self, transfer):
        try:
            await transfer
        except fairway.Error:
            pass

    async def run(self):
        say(ready=True)
        await serve(self.handle, self.listen(), self.watch())


if __name__ == "__main__":
    asyncio.run(Prefill(sys.argv[1], int(sys.argv[2]), sys.argv[3]).run())
