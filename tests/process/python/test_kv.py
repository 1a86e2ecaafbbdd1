"""examples/kv as a user runs it: tokens of many processes equal one's while processes die; and its parts by themselves."""

import asyncio
import contextlib
import io
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import fairway
import numpy as np

KV = pathlib.Path(__file__).resolve().parents[3] / "examples/kv"
sys.path.insert(0, str(KV))
from model import BLOCK, Model  # noqa: E402
import pool  # noqa: E402
import processes  # noqa: E402
import run  # noqa: E402
from pages import Cache, Pages, PrefixCache, names_of  # noqa: E402
from prefixes import Prefixes  # noqa: E402
from serving import Serving  # noqa: E402
import timeline  # noqa: E402


class Parts(unittest.TestCase):
    def test_a_cache_cut_by_heads_gives_the_same_bits(self):
        prompt = list(range(70))
        expected = Model().generate(prompt, 6, Cache(Pages(8), range(8)))
        for ranks in (2, 4):
            self.assertEqual(Model().generate(prompt, 6, Cache(Pages(8, ranks), [3, 1, 7, 0, 5, 2, 4, 6])), expected)

    def test_blocks_of_a_prefix_are_the_ones_that_would_be_computed(self):
        model, pages = Model(), Pages(8)
        model.prefill(list(range(40)), Cache(pages, range(8)))
        left = pages.arrays[0][:, :, :2].copy()
        model.prefill(list(range(32)) + [9] * 30, Cache(pages, range(8)))
        np.testing.assert_array_equal(pages.arrays[0][:, :, :2], left)

    def test_prefixes_are_shared_and_evicted(self):
        pages = Pages(8)
        prefixes = PrefixCache(pages)
        prompt = list(range(3 * BLOCK + 1))
        table, here = prefixes.take(prompt, 8)
        self.assertEqual((len(table), here), (4, 0))
        prefixes.remember(prompt, table)
        again, here = prefixes.take(prompt[: 2 * BLOCK + 1] + [7] * 5, 8)
        self.assertEqual((again[:2], here), (table[:2], 2))
        prefixes.give_back(table)
        prefixes.give_back(again)
        self.assertEqual(len(pages.free), 5)  # three are remembered
        full, here = prefixes.take([200] * (7 * BLOCK), 8)  # they go for who needs them
        self.assertEqual((len(full), here), (8, 0))
        self.assertIsNone(prefixes.take([1], 1))
        prefixes.give_back(full)


class Index(unittest.TestCase):
    def test_the_block_that_was_not_used_for_longest_goes(self):
        index = pool.Index(np.zeros((2, pool.ENTRY_WORDS), np.uint64))
        a, b, c = (bytes([letter]) * 24 for letter in b"abc")
        for name in (a, b):
            index.end(name, index.begin(name), True)
        self.assertIsNone(index.begin(a))  # is here
        slot_of_b = index.slots[b]
        index.used(index.slots[a])
        slot = index.begin(c)
        self.assertEqual(slot, slot_of_b)
        self.assertEqual(bytes(index.words[slot, :3]), bytes(24))  # while it is filled readers find nothing
        self.assertIsNone(index.begin(c))  # is on its way
        index.end(c, slot, False)  # and did not come
        self.assertEqual((set(index.slots), list(index.free)), ({a}, [slot]))

    def test_each_filling_of_a_slot_changes_its_entry(self):
        index = pool.Index(np.zeros((1, pool.ENTRY_WORDS), np.uint64))
        seen = set()
        for name in (b"x" * 24, b"y" * 24, b"x" * 24):
            index.end(name, index.begin(name), True)
            seen.add(index.words[0].tobytes())
        self.assertEqual(len(seen), 3)


class PoolProcess(unittest.IsolatedAsyncioTestCase):
    """One client of a pool that runs in this process, found by its name."""

    async def asyncSetUp(self):
        # A busy machine is no dead pool: nothing here is about deadlines.
        self.pool = pool.Pool("serve", peer_timeout=30.0)
        self.engine = fairway.Engine(name="client", directory=self.pool.engine.address, peer_timeout=30.0)
        self.pages = Pages(32, 2, self.engine, "r")
        for rank, region in enumerate(self.pages.regions):
            self.engine.publish(f"rank {rank}", region)
        self.client = Prefixes(self.engine, self.pages, "here")
        self.client.DEADLINE = 60.0
        self.tasks = [asyncio.create_task(one) for one in (self.pool.listen(), self.pool.watch(), self.listen(), self.watch())]
        await self.until(lambda: self.client._reach() is not None)

    async def until(self, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), deadline, "it did not come")
            await asyncio.sleep(0.005)

    async def until_lent(self):
        """Without giving the pool time to answer in between."""
        deadline = time.monotonic() + 60
        while not self.client.lent:
            self.assertLess(time.monotonic(), deadline, "nothing was offered")
            await asyncio.sleep(0)

    async def asyncTearDown(self):
        for task in self.tasks:
            task.cancel()
        self.engine.close()
        self.pool.engine.close()

    async def listen(self):
        async for note in self.engine.notifications():
            self.client.told(note)

    async def watch(self):
        async for event in self.engine.peer_events():
            if event.kind == "down":
                self.client.down(event.peer)

    async def test_blocks_come_back_as_they_were_put(self):
        prompt = list(range(200))
        chance = np.random.default_rng(1)
        for array in self.pages.arrays:
            array[:] = chance.random(array.shape, np.float32)
        await asyncio.wait_for(self.client.put(prompt, list(range(12))), 60)
        await self.until(lambda: len(self.pool.index.slots) == 12)  # the pool may hear of its own reads' end after the client
        self.assertEqual(self.client.lent, {})
        self.assertEqual(await self.client.get(prompt, list(range(12, 25)), 0), 12)
        for array in self.pages.arrays:
            np.testing.assert_array_equal(array[:, :, 12:24], array[:, :, :12])
        self.assertEqual(await self.client.get(prompt[:70] + [9] * 60, list(range(12, 25)), 2), 4)  # two it has, two more alike

    async def test_the_pools_last_word_may_come_after_its_session_has_ended(self):
        putting = asyncio.create_task(self.client.put(list(range(40)), [0, 1]))
        await self.until_lent()
        number = int(self.client.offers[0])
        message = pool.PUT_HEAD.pack(number, 0, 0, 0)
        self.client.down(self.client.far[0])
        self.client.told(mock.Mock(immediate=pool.TAKEN, message=message))
        self.client.told(mock.Mock(immediate=pool.TAKEN, message=message))
        await asyncio.wait_for(putting, 60)

    async def test_what_is_offered_no_more_is_not_kept(self):
        prompt = list(range(100))
        fetch, fetched = self.pool.fetch, asyncio.Event()

        async def fetch_and_tell(*given):  # looking at the pool's tasks now and then would miss one that is quick
            await fetch(*given)
            fetched.set()

        with mock.patch.object(self.client, "told"), mock.patch.object(self.pool, "fetch", fetch_and_tell):
            putting = asyncio.create_task(self.client.put(prompt, list(range(6))))
            await self.until_lent()
            self.client.offers[:] = 0  # as when the lender has given up
            await asyncio.wait_for(fetched.wait(), 60)
        self.assertEqual(len(self.pool.index.slots), 0)
        putting.cancel()

    async def test_a_block_that_is_replaced_while_it_is_read_is_not_served(self):
        prompt = list(range(40))
        await asyncio.wait_for(self.client.put(prompt, [0, 1]), 60)
        await self.until(lambda: len(self.pool.index.slots) == 2)  # the pool may hear of its own reads' end after the client
        slot = self.pool.index.slots[next(names_of(prompt))]
        reads = self.client._reads

        def meanwhile(*given):
            self.pool.index.words[slot, 3] += 1
            return reads(*given)

        with mock.patch.object(self.client, "_reads", meanwhile):
            self.assertEqual(await self.client.get(prompt, [4, 5], 0), 0)
        self.assertEqual(await self.client.get(prompt, [4, 5], 0), 2)

    async def test_nonsense_to_the_pool_harms_nobody(self):
        far = self.client.far
        for message in (struct.pack("<QHHI", 5, 60000, 1, 32), struct.pack("<QHHI", 5, 1, 9, 32) + bytes(26), b"x", bytes(250)):
            try:
                self.engine.read(np.empty(4, np.uint64), far[1][0], notify=(pool.PUT, message)).wait(5)
            except fairway.Error:
                pass  # the pool may have hung up on us
        served, deadline = 0, time.monotonic() + 60
        while served != 2:  # until the pool's last hanging up has been seen
            self.assertLess(time.monotonic(), deadline, "the pool serves no more")
            await self.until(lambda: self.client._reach() is not None)
            await asyncio.wait_for(self.client.put(list(range(40)), [0, 1]), 60)
            served = await self.client.get(list(range(40)), [4, 5], 0)


class Example(unittest.TestCase):
    def test_it_survives_the_death_of_each_of_its_processes(self):
        """Each kind of process in turn: its requests end as one process's would, and afterwards the pool serves again."""
        prompts = [[kind] * 40 + list(range(kind, kind + 20)) for kind in range(5)]
        pages = Pages(8)
        expected = [Model().generate(prompt, 4, Cache(pages, range(8))) for prompt in prompts]

        async def scene():
            async with Serving([2], [4]) as serving:
                for kind in dict.fromkeys(worker.kind for worker in list(serving.workers)):
                    for again in (False, True):
                        requests = [asyncio.create_task(serving.serve(f"{kind} {again} {number}", prompt, 4))
                                    for number, prompt in enumerate(prompts)]
                        if not again:
                            await asyncio.sleep(0.05)
                            for worker in list(serving.workers):
                                if worker.kind == kind:
                                    worker.kill()
                        for request, tokens in zip(requests, expected):
                            self.assertEqual((await request)["tokens"], tokens, kind)
                deadline = time.monotonic() + 120
                skipped = 0
                while not skipped and time.monotonic() < deadline:
                    skipped = (await serving.serve(f"at last {time.monotonic()}", prompts[0], 1))["skipped"]
                self.assertGreater(skipped, 0)
                return {worker.kind for worker in serving.workers}

        kinds = asyncio.run(asyncio.wait_for(scene(), 400))
        self.assertLessEqual({"prefill", "decode", "pool"}, kinds)

    def test_without_redis_an_engine_serves_the_directory(self):
        async def scene():
            async with Serving([2], [2]) as serving:
                deadline = time.monotonic() + 120
                skipped = 0
                while not skipped and time.monotonic() < deadline:
                    skipped = (await serving.serve(f"{time.monotonic()}", list(range(50)), 1))["skipped"]
                self.assertGreater(skipped, 0)

        with mock.patch.object(processes.Redis, "installed", staticmethod(lambda: None)):
            asyncio.run(asyncio.wait_for(scene(), 400))

    def test_a_process_that_does_not_start_is_told(self):
        async def scene():
            async with Serving([2], [2], pool=False):
                pass

        with mock.patch.object(processes, "HERE", pathlib.Path("/nowhere")), mock.patch("sys.stderr"):
            with self.assertRaises(processes.Died):
                asyncio.run(asyncio.wait_for(scene(), 60))

    def test_tokens_are_one_processs_while_others_die(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = f"{folder}/timeline.svg"
            done = subprocess.run([sys.executable, KV / "run.py", "--requests", "24", "--chaos", "3", "--seconds", "400", "--picture", picture],
                                  capture_output=True, text=True, timeout=450)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("tokens that differ from one process's: 0 of 24 requests", done.stdout)
            self.assertIn("arrived", pathlib.Path(picture).read_text())

    def test_the_timelines_ticks_are_round(self):
        for milliseconds, shown in ((17.47, ["0", "5", "10", "15"]), (1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]), (0, ["0"])):
            self.assertEqual([f"{at * 1e3:g}" for at in timeline.ticks(milliseconds / 1e3)], shown)

    def test_without_a_module_it_says_so_in_a_sentence(self):
        """A copy outside of any tree, with nothing on the path; in a tree it finds the newest module that was built."""
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "examples" / "kv"
            shutil.copytree(KV, copy, ignore=shutil.ignore_patterns("__pycache__"))
            clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_PRELOAD")}
            done = subprocess.run([sys.executable, "-B", copy / "run.py"], capture_output=True, text=True, timeout=60, env=clean)
            if "imports no fairway" not in done.stderr:
                self.skipTest("a fairway is installed")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            built = copy.parent.parent / "build" / "some" / "python" / "fairway"
            built.mkdir(parents=True)
            (built / "_fairway.cpython-0-nowhere.so").write_bytes(b"")
            (built / "__init__.py").write_text("from . import _fairway")
            done = subprocess.run([sys.executable, "-B", copy / "run.py"], capture_output=True, text=True, timeout=60, env=clean)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
            self.assertIn("are for another Python", done.stderr)
            (built / "__init__.py").write_text("")
            done = subprocess.run([sys.executable, "-B", "-c", "import find_fairway, os; print(find_fairway.find(), os.environ['PYTHONPATH'])"],
                                  cwd=copy, capture_output=True, text=True, timeout=60, env=clean)
            self.assertEqual(done.stdout, f"None {built.parent}\n", done.stderr)

    def test_options_that_make_no_sense_are_told(self):
        for wrong in (["--prefills", "3"], ["--decodes", "x"], ["--requests", "0"], ["--tokens", "1000"], ["--seconds", "0"]):
            with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(io.StringIO()) as said:
                run.parse(wrong)
            self.assertEqual(caught.exception.code, 2)
            self.assertIn("error:", said.getvalue())


if __name__ == "__main__":
    unittest.main()
