"""The part of a router: keeps prefill, decode and pool processes running, hands requests to them, and gives each request
again to others when one of its processes dies, so that none is lost."""

import asyncio
import collections
import itertools
import random
import signal

from model import BLOCK, LAYERS
from processes import Died, Redis, Worker, free_port


class Serving:
    def __init__(self, prefills, decodes, pool=True):
        """prefills, decodes: for each process its number of tensor-parallel ranks. pool: one for prefixes, which is found by
        its name in a directory: Redis, or, where that is not installed, one that an engine of this process serves."""
        self.wanted = [("prefill", ranks) for ranks in prefills] + [("decode", ranks) for ranks in decodes]
        self.pool, self.directory, self.engine = pool, "", None
        self.workers = []  # those that are up
        self.keepers = []
        self.closing = False
        self.names, self.attempts = itertools.count(1), itertools.count(1)
        self.counts = collections.Counter()
        self.turns = collections.Counter()  # of each kind of process

    # ---- processes ----

    async def __aenter__(self):
        try:
            if self.pool and Redis.installed():
                port = free_port()
                self.directory = f"redis://127.0.0.1:{port}/kv"
                await self._keep(lambda: Redis(port))
            elif self.pool:
                import fairway

                self.engine = fairway.Engine(name="router", directory="serve")
                self.directory = self.engine.address
            makers = [lambda wanted=wanted: Worker(wanted[0], f"{wanted[0]}-{next(self.names)}", wanted[1], self.directory)
                      for wanted in self.wanted]
            if self.pool:
                makers.append(lambda: Worker("pool", "pool", self.directory))
            # All of them have ended before an error is raised: asyncio may wait for ever for a process whose start is cancelled.
            for outcome in await asyncio.gather(*(self._keep(make) for make in makers), return_exceptions=True):
                if outcome:
                    raise outcome
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _keep(self, make):
        """Starts a process, and from then on a new one whenever it has died."""
        self.keepers.append(asyncio.create_task(self._restart(await self._start(make), make)))

    async def _start(self, make):
        for tries in range(3):
            worker = make()
            try:
                await worker.start()
                self.workers.append(worker)
                return worker
            except Died:
                if tries == 2:
                    raise

    async def _restart(self, worker, make):
        while True:
            await worker.gone.wait()
            self.workers.remove(worker)
            if self.closing:
                return
            worker = await self._start(make)
            if self.closing:
                await worker.stop()

    async def __aexit__(self, *_):
        self.closing = True
        await asyncio.gather(*(worker.stop() for worker in list(self.workers)))
        await asyncio.gather(*self.keepers, return_exceptions=True)
        if self.engine:
            self.engine.close()

    async def _pick(self, kind):
        while True:
            alive = [worker for worker in self.workers if worker.kind == kind and not worker.gone.is_set()]
            if alive:
                self.turns[kind] += 1
                return alive[self.turns[kind] % len(alive)]
            for keeper in self.keepers:
                if keeper.done():
                    keeper.result()  # raises why its process does not come back
            await asyncio.sleep(0.01)

    # ---- requests ----

    async def serve(self, request, prompt, count, layerwise=True):
        """The tokens, whatever happens to processes on the way, and what was seen of their pages."""
        while True:
            decode = await self._pick("decode")
            try:
                answer = decode.expect("request", request)
                decode.say(do="take", request=request, prompt=prompt, count=count)
                answer = await self._attempt(decode, request, prompt, count, await answer, layerwise)
                self.counts["ended"] += 1
                return answer
            except Died:
                self.counts["decode died"] += 1

    async def _attempt(self, decode, request, prompt, count, taken, layerwise):
        blocks = (len(prompt) + BLOCK - 1) // BLOCK - taken["here"]
        while True:
            prefill = await self._pick("prefill")
            attempt = next(self.attempts)
            pairs = max(prefill.arguments[0], decode.arguments[0])
            done, computed = decode.expect("request", request), prefill.expect("attempt", attempt)
            decode.say(do="go_on", request=request, attempt=attempt, prompt=prompt, count=count, expected=LAYERS * pairs * blocks)
            prefill.say(attempt=attempt, prompt=prompt, decoder=decode.about["address"], ranks=decode.arguments[0],
                        blocks=decode.about["blocks"], table=taken["table"], here=taken["here"], layerwise=layerwise)
            try:
                told = await computed
            except Died:
                self.counts["prefill died"] += 1
                told = {"failed": "its process died"}
            if "failed" not in told:
                decode.say(do="token", attempt=attempt, token=told["token"])
                answer = await done
                return answer | {"events": told["events"] + answer["events"], "sent_blocks": blocks, "skipped": told["skipped"]}
            self.counts["computed again"] += 1
            dropped = decode.expect("dropped", attempt)
            left_open = prefill.gone.is_set() and decode.about["address"] in prefill.connected
            decode.say(do="drop", attempt=attempt, prefill=prefill.name if left_open else "")
            await dropped

    # ---- trouble ----

    async def chaos(self, seed, enough, pause=0.15):
        """Kills and freezes processes at random until `enough`, an asyncio.Event, is set. Leaves none frozen. Between two a
        request ends: on a slow machine trouble may not come faster than the work."""
        chance = random.Random(seed)
        ended = -1
        while not enough.is_set():
            await asyncio.sleep(chance.uniform(0, 2 * pause))
            if self.counts["ended"] == ended:
                continue
            ended = self.counts["ended"]
            alive = [worker for worker in self.workers if not worker.gone.is_set()]
            if not alive:
                continue
            worker = chance.choice(alive)
            if chance.random() < 0.4:
                worker.kill()
                await worker.gone.wait()
                self.counts["killed"] += 1
                self.counts[f"killed {worker.kind}"] += 1
                continue
            worker.signal(signal.SIGSTOP)
            self.counts["frozen"] += 1
            try:
                await asyncio.sleep(chance.choice([0.05, 0.3, 1.5]))
            finally:
                worker.signal(signal.SIGCONT)
