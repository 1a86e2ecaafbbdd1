"""The connector for as many transfers as a day brings, in minutes: connections are lost, engines die and come back, decoders never
come, requests are aborted; and nothing is left behind. `make test-long` runs it (FAIRWAY_LONG)."""

import gc
import os
import random
import threading
import time
import unittest

from vllm_engine import BLOCKS, Engine

TRANSFERS = 100_000 if os.environ.get("FAIRWAY_LONG") else 2_000
TOGETHER = 10  # requests of two blocks


class Day(unittest.TestCase):
    def rss(self):
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def start(self, name):
        return Engine(name, unclaimed_seconds=1.0)

    def settle(self, until, *engines):
        deadline = time.monotonic() + 120
        while not until():
            self.assertLess(time.monotonic(), deadline, "a request did not end")
            for engine in engines:
                engine.step()

    def test_a_days_transfers_leave_nothing(self):
        chance = random.Random(24)
        p, d = self.start("p"), self.start("d")
        counts = dict.fromkeys(("loaded", "failed", "aborted", "unclaimed", "cut", "restarted"), 0)
        rounds, before = TRANSFERS // TOGETHER, None
        for number in range(rounds):
            names = [f"{number}.{one}" for one in range(TOGETHER)]
            for name in names:
                params = p.prefill(name, 32, float(number % 1000))
                if chance.random() < 0.002:
                    counts["unclaimed"] += 1  # its decoder never comes
                    continue
                d.decode(name, 32, params)
                if chance.random() < 0.01:
                    d.abort(name)
                    counts["aborted"] += 1
            if number % 50 == 49:
                for future in list(d.worker.worker.remotes.values()):
                    if future.done() and not future.exception():
                        future.result()[0].peer.disconnect()
                counts["cut"] += 1
            self.settle(lambda: not d.loading, p, d)
            for name in list(d.loaded):
                self.assertTrue(d.holds(d.loaded[name], number % 1000), name)  # nobody is served what did not arrive
                counts["loaded"] += 1
                d.release(name)
            counts["failed"] += len(d.failed)
            for name in list(d.failed):
                d.release(name)
            self.settle(lambda: len(p.free) >= 2 * TOGETHER, p, d)
            if number % (rounds // 8) == rounds // 8 - 1:
                (p if number % 2 else d).shutdown()
                counts["restarted"] += 1
                if number % 2:
                    p = self.start("p")
                else:
                    d = self.start("d")
            if number == rounds // 5:
                before = self.left()
        self.settle(lambda: not p.held, p, d)
        after = self.left()
        print(f"{TRANSFERS} transfers: {counts}; then and now {before}, {after}")
        self.assertGreater(counts["loaded"], TRANSFERS * 0.8)
        for engine in (p, d):
            self.assertEqual(sorted(engine.free), list(range(BLOCKS)))
            worker = engine.worker.worker
            self.assertEqual((engine.held, engine.loading, worker.loading, worker.offers, worker.farewells, worker.errors, worker.sent),
                             ({}, {}, {}, {}, [], set(), set()))
            self.assertEqual(len(engine.scheduler.scheduler.free), 4096)
            metrics = worker.engine.metrics()
            self.assertLess(metrics["regions"], 12)
            self.assertLess(metrics["transfers_in_use"], 100)
            self.assertLess(len(metrics["peers"]), 4)
        for what, most in (("descriptors", 8), ("threads", 4), ("memory", 64 << 20)):
            self.assertLess(after[what] - before[what], most, f"{what}: {before} then {after}")
        p.shutdown()
        d.shutdown()

    def left(self):
        gc.collect()
        return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count(), "memory": self.rss()}


if __name__ == "__main__":
    unittest.main()
