"""The part of a router: starts prefill and decode processes, hands requests to them, and gives each request again to others
when one of its processes dies, so that none is lost."""

import asyncio
import collections
import itertools
import json
import os
import pathlib
import random
import signal
import sys

from model import BLOCK, LAYERS

HERE = pathlib.Path(__file__).resolve().parent


class Died(Exception):
    pass


class Worker:
    """One process; answers are told apart by the first key of theirs that is one of KEYS."""

    KEYS = ("request", "attempt", "dropped", "ready")

    def __init__(self, kind, name, ranks):
        self.kind, self.name, self.ranks = kind, name, ranks
        self.waiting = {}
        self.dead = False

    async def start(self):
        environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, HERE / f"{self.kind}.py", self.name, str(self.ranks),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20, env=environment)
        ready = self.expect("ready", True)
        self.reader = asyncio.create_task(self.read())
        self.about = await ready
        return self

    async def read(self):
        while line := await self.process.stdout.readline():
            message = json.loads(line)
            key = next(key for key in self.KEYS if key in message)
            future = self.waiting.pop((key, message[key]), None)
            if future and not future.done():
                future.set_result(message)
        self.dead = True
        await self.process.wait()
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(Died(self.name))
        self.waiting.clear()

    def expect(self, key, value):
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # one that nobody asks for any more is fine
        if self.dead:
            future.set_exception(Died(self.name))
        else:
            self.waiting[key, value] = future
        return future

    def say(self, **message):
        if not self.dead:
            try:
                self.process.stdin.write((json.dumps(message) + "\n").encode())
            except (BrokenPipeError, ConnectionResetError):
                pass

    async def stop(self):
        if self.process.returncode is None:
            self.process.stdin.close()
            try:
                await asyncio.wait_for(self.process.wait(), 5)
            except asyncio.TimeoutError:
                self.process.kill()
        await self.reader


class Serving:
    def __init__(self, prefills, decodes, layerwise=True):
        """prefills, decodes: for each process its number of tensor-parallel ranks."""
        self.wanted = [("prefill", ranks) for ranks in prefills] + [("decode", ranks) for ranks in decodes]
        self.layerwise = layerwise
        self.workers = []
        self.names, self.attempts = itertools.count(1), itertools.count(1)
        self.counts = collections.Counter()
        self.turns = itertools.count()

    async def start_one(self, kind, ranks):
        return await Worker(kind, f"{kind}-{next(self.names)}", ranks).start()

    async def __aenter__(self):
        self.workers = list(await asyncio.gather(*(self.start_one(*wanted) for wanted in self.wanted)))
        return self

    async def __aexit__(self, *_):
        await asyncio.gather(*(worker.stop() for worker in self.workers))

    def pick(self, kind):
        alive = [worker for worker in self.workers if worker.kind == kind and not worker.dead]
        return alive[next(self.turns) % len(alive)] if alive else None

    async def serve(self, request, prompt, count):
        """The tokens, whatever happens to processes on the way, and what was seen of their pages."""
        while True:
            decode = self.pick("decode")
            if decode is None:
                await asyncio.sleep(0.01)
                continue
            try:
                answer = decode.expect("request", request)
                decode.say(do="take", request=request, prompt=prompt, count=count)
                taken = await answer
                return await self.attempt(decode, request, prompt, count, taken)
            except Died:
                self.counts["decode died"] += 1

    async def attempt(self, decode, request, prompt, count, taken):
        blocks = (len(prompt) + BLOCK - 1) // BLOCK - taken["here"]
        while True:
            prefill = self.pick("prefill")
            if prefill is None:
                await asyncio.sleep(0.01)
                continue
            attempt = next(self.attempts)
            pairs = max(prefill.ranks, decode.ranks)
            done, computed = decode.expect("request", request), prefill.expect("attempt", attempt)
            decode.say(do="go_on", request=request, attempt=attempt, prompt=prompt, count=count, expected=LAYERS * pairs * blocks)
            prefill.say(attempt=attempt, prompt=prompt, decoder=decode.about["address"], ranks=decode.ranks,
                        blocks=decode.about["blocks"], table=taken["table"], here=taken["here"], layerwise=self.layerwise)
            try:
                told = await computed
            except Died:
                self.counts["prefill died"] += 1
                told = {"failed": "its process died"}
            if "failed" not in told:
                decode.say(do="token", attempt=attempt, token=told["token"])
                answer = await done
                return answer | {"events": told["events"] + answer["events"], "sent_blocks": blocks}
            self.counts["computed again"] += 1
            dropped = decode.expect("dropped", attempt)
            decode.say(do="drop", attempt=attempt, prefill=prefill.name if prefill.dead else "")
            await dropped

    async def chaos(self, seed, enough, pause=0.15):
        """Kills, freezes and restarts processes at random until `enough`, an asyncio.Event, is set. Returns with all of them
        alive; cancelling it instead would end the task that hears a worker, or leave one frozen."""
        chance = random.Random(seed)
        while not enough.is_set():
            await asyncio.sleep(chance.uniform(0, 2 * pause))
            worker = chance.choice(self.workers)
            if worker.dead or chance.random() < 0.4:
                worker.process.kill() if worker.process.returncode is None else None
                await worker.reader
                self.counts["killed"] += 1
                self.workers[self.workers.index(worker)] = await self.start_one(worker.kind, worker.ranks)
            else:
                worker.process.send_signal(signal.SIGSTOP)
                self.counts["frozen"] += 1
                await asyncio.sleep(chance.choice([0.05, 0.3, 1.5]))
                worker.process.send_signal(signal.SIGCONT)
