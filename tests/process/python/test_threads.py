"""Python threads that use engines at random: memory of temporaries, transfers that are dropped, polls, waits, regions that
several deregister at once, and a close() in the middle. Under AddressSanitizer a use after free ends the test; without it
what is left tells of lost transfers: those in use, and the registrations, go back to none. `make test-long` makes more
rounds (FAIRWAY_LONG)."""

import gc
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
import unittest

import fairway
import numpy as np

from support import Pair

LONG = bool(os.environ.get("FAIRWAY_LONG"))
ROUNDS, TURNS, THREADS = (40, 2000, 6) if LONG else (6, 150, 4)


class AtRandom:
    """What one thread does, turn after turn, on a pair of engines."""

    def __init__(self, seed, here, there, peer, remote, shared):
        self.chance = random.Random(seed)
        self.here, self.there, self.peer, self.remote, self.shared = here, there, peer, remote, shared
        self.kept = []
        self.verbs = [self.write_dropped] * 6 + [self.read_dropped] * 4 + [self.write_polled] * 4 + [
            self.write_kept, self.wait, self.wait_any, self.wait_all, self.flush, self.write_queued, self.poll_queue, self.probe, self.done, self.poll, self.batch, self.register, self.deregister, self.look_up, self.observe, self.cancel]

    def turn(self):
        self.chance.choice(self.verbs)()

    def part(self):
        size = self.chance.choice((1, 8, 512, 4096, 40000))
        return np.full(size, size % 251, np.uint8), self.remote[0:size]

    def write_dropped(self):
        self.here.write(*self.part())

    def read_dropped(self):
        self.here.read(*self.part())

    def write_polled(self):
        self.here.write(*self.part(), callback=lambda transfer: self.shared.seen.append(transfer.done))

    def write_kept(self):
        self.kept.append(self.here.write(*self.part()))

    def wait(self):
        if self.kept:
            self.kept.pop().wait()

    def wait_any(self):
        self.write_kept(), self.write_kept()
        self.kept.remove(self.here.wait_any(self.kept, 60))

    def wait_all(self):
        kept, self.kept = self.kept, []
        self.here.wait_all(kept, 60)

    def flush(self):
        """Beside others that go on: those are not waited for."""
        self.chance.choice((lambda: self.here.flush(self.peer, 60), lambda: self.here.drain(60)))()

    def write_queued(self):
        self.shared.queued.append(self.here.write(*self.part(), queue=self.shared.queue))

    def poll_queue(self):
        self.shared.unqueued += self.shared.queue.poll(8)

    def probe(self):
        assert self.here.probe(99) is None

    def done(self):
        self.kept = [one for one in self.kept if not one.done]

    def poll(self):
        self.here.poll()

    def cancel(self):
        self.here.write(*self.part()).cancel()

    def batch(self):
        local, remote = self.part()
        self.here.submit([fairway.Request.write(local, remote), fairway.Request.write(local.copy(), remote)])

    def register(self):
        region = self.there.register(np.zeros(4096, np.uint8), "rw")
        name = f"region {self.chance.random()}"
        self.there.publish(name, region)
        self.shared.regions.append((name, region))

    def deregister(self):
        """Perhaps while another thread does, or moves bytes there."""
        if self.shared.regions:
            name, region = self.chance.choice(self.shared.regions)
            region.deregister()
            assert not region.registered
            try:
                self.shared.regions.remove((name, region))
            except ValueError:
                pass  # the other one did

    def look_up(self):
        if self.shared.regions:
            name, _ = self.chance.choice(self.shared.regions)
            self.here.write(np.zeros(64, np.uint8), self.peer.lookup(name, 0.01)[0:64])

    def observe(self):
        self.here.metrics(), repr(self.here), self.here.explain(self.peer), repr(self.kept)


class Shared:
    def __init__(self):
        self.regions, self.seen, self.queued, self.unqueued = [], [], [], []


class Threads(unittest.TestCase):
    def play(self, seed, closes, **options):
        joined = fairway.Loopback() if seed % 2 else None  # else through shared memory
        here = fairway.Engine(name="here", loopback=joined, **options)
        there = fairway.Engine(name="there", loopback=joined)
        self.addCleanup(here.close)
        self.addCleanup(there.close)
        memory = there.register(np.zeros(1 << 16, np.uint8), "rw")
        there.publish("memory", memory)
        peer = here.connect(there.address)
        remote = peer.lookup("memory")
        base = here.metrics()["regions"], there.metrics()["regions"]
        shared, failed, gone = Shared(), [], threading.Event()
        shared.queue = here.make_queue(4096)

        def work(number):
            player = AtRandom(f"{seed} {number}", here, there, peer, remote, shared)
            for _ in range(TURNS):
                try:
                    player.turn()
                except (fairway.Revoked, fairway.TimedOut, fairway.NotFound, fairway.Cancelled):
                    pass  # another thread has ended it
                except fairway.QueueFull:
                    player.done(), player.poll_queue()
                except fairway.Error as error:
                    if not gone.is_set():
                        failed.append(error)
                        return
                except Exception as error:
                    failed.append(error)
                    return

        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        if closes:
            while len(shared.seen) < 20 and any(thread.is_alive() for thread in threads):
                time.sleep(0.001)
            gone.set()
            ends = [threading.Thread(target=here.close) for _ in range(2)]  # the second returns no sooner than the first
            for end in ends:
                end.start()
            for end in ends:
                end.join()
            self.assertTrue(here.closed)
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        while len(shared.unqueued) < len(shared.queued):
            shared.unqueued.append(shared.queue.wait(60))
        self.assertEqual((len(shared.unqueued), set(shared.unqueued)), (len(shared.queued), set(shared.queued)))
        if not closes:
            self.assert_nothing_left(here, there, shared, remote, base)

    def assert_nothing_left(self, here, there, shared, remote, base):
        for _, region in shared.regions:
            region.deregister()
        shared.regions.clear()
        deadline = time.monotonic() + 60
        while True:  # each call collects some of what was dropped
            here.poll()
            gc.collect()  # callbacks know their thread's transfers
            here.write(b"x", remote[0:1]).wait()
            left = here.metrics()["transfers_in_use"], here.metrics()["regions"], there.metrics()["regions"]
            if left[0] == 0 and left[1] <= base[0] and left[2] <= base[1]:
                break
            self.assertLess(time.monotonic(), deadline, f"left: {left}, there were regions {base}")
        self.assertTrue(all(shared.seen))

    def test_transfers_in_use_go_back_to_none(self):
        for seed in range(ROUNDS):
            with self.subTest(seed=seed):
                self.play(seed, closes=False)

    def test_a_small_queue_makes_room(self):
        for seed in range(ROUNDS):
            with self.subTest(seed=seed):
                self.play(seed, closes=False, max_transfers=64)

    def test_a_close_in_the_middle_ends_everything(self):
        for seed in range(ROUNDS):
            with self.subTest(seed=seed):
                self.play(seed, closes=True)


class Dropped(Pair):
    def test_no_transfer_is_lost_whatever_its_arrays_end_runs(self):
        """The end of a memory is Python's code: other threads run, and come back to the tracker."""
        remote = self.offer(np.zeros(4096, np.uint8), "rw")
        alice, each = self.alice, 2500 if LONG else 250

        class Owner:
            """A buffer without a weak reference's owner: registered for one transfer, and ended with it."""

            def __init__(self):
                self.bytes = bytearray(64)

            def __del__(self):
                time.sleep(0)  # others run

        def temporary():
            owner = Owner()
            array = np.frombuffer(owner.bytes, np.uint8)
            return memoryview(array), owner

        def work():
            for _ in range(each):
                view, owner = temporary()
                alice.write(view, remote[0:64], callback=lambda done, kept=owner: None)
                alice.write(np.ones(64, np.uint8), remote[0:64])
                alice.poll()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        deadline = time.monotonic() + 60
        while alice.metrics()["transfers_in_use"] > 0:
            alice.poll()
            alice.write(b"x", remote[0:1]).wait()
            self.assertLess(time.monotonic(), deadline, alice.metrics()["transfers_in_use"])

    def test_transfers_that_never_end_keep_no_other_from_being_collected(self):
        remote = self.offer(np.zeros(64, np.uint8), "rw")
        for tag in range(100):
            self.peer.receive(tag, bytearray(8))  # dropped; nobody sends
        for _ in range(300):
            self.alice.write(np.ones(64, np.uint8), remote)
        deadline = time.monotonic() + 60
        while self.alice.metrics()["transfers_in_use"] > 100:
            self.alice.write(b"x", remote[0:1]).wait()
            self.assertLess(time.monotonic(), deadline, self.alice.metrics()["transfers_in_use"])

    def test_a_batch_finds_room_beside_transfers_that_never_end(self):
        with fairway.Engine(max_transfers=8) as small:
            region = self.bob.allocate(64, "rw")
            self.bob.publish("room", region)
            peer = small.connect(self.bob.address)
            remote = peer.lookup("room")
            for tag in range(4):
                peer.receive(tag, bytearray(8))
            batch = small.submit([fairway.Request.write(b"12345678", remote[0:8])] * 64)
            self.assertEqual(batch.wait(60), 64 * 8)


class Fenced(unittest.TestCase):
    def test_memory_that_a_peer_still_reaches_is_kept_however_often_one_asks(self):
        """A peer that has it mapped may write it until it lets go: the region stays registered, and its memory stays."""
        with fairway.Engine() as owner, fairway.Engine() as holder:  # not joined: through shared memory
            region = owner.allocate(4096, "rw")
            owner.publish("mapped", region)
            mapping = holder.map(holder.connect(owner.address).lookup("mapped"), -1)
            for _ in range(3):
                with self.assertRaises(fairway.NotFenced):
                    region.deregister(0.02)
                self.assertTrue(region.registered)
            answers = []

            def ask():
                try:
                    region.deregister(60)
                    answers.append("fenced")
                except fairway.Error as error:
                    answers.append(error)

            threads = [threading.Thread(target=ask) for _ in range(2)]
            for thread in threads:
                thread.start()
            with self.assertRaises(fairway.NotFenced):
                region.deregister(0.02)  # beside two that wait
            mapping.unmap()
            for thread in threads:
                thread.join()
            self.assertEqual(answers, ["fenced", "fenced"])
            region.deregister()  # again is nothing
            self.assertFalse(region.registered)

    def test_memory_that_a_peer_still_reaches_is_not_freed_with_its_last_user(self):
        script = """
            import fairway, gc, numpy, sys, warnings, weakref
            from unittest import mock
            warnings.simplefilter('always')
            owner, holder = fairway.Engine(), fairway.Engine()
            region = owner.allocate(4096, 'rw')
            owner.publish('mapped', region)
            remote = holder.connect(owner.address).lookup('mapped')
            mapping = holder.map(remote, -1)
            seen = numpy.frombuffer(region, numpy.uint8)
            address = region.address
            del seen, region
            gc.collect()
            maps = open('/proc/self/maps').read()
            print('kept' if '%x-' % address in maps else 'freed')
            mapping.unmap()
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout), (0, "kept\n"), done.stderr)
        self.assertIn("stays allocated for good", done.stderr)


class Waiting(Pair):
    def test_other_threads_run_while_an_engine_is_looked_at(self):
        """Each of these asks a worker and waits. Threads switch here only where one gives the interpreter's lock up by itself."""
        region = self.bob.allocate(64, "rw")
        self.bob.publish("word", region)
        self.bob.publish("held by nobody else", other := self.bob.allocate(64, "rw"))
        request = fairway.Request.write(bytes(64), self.peer.lookup("word"))
        transfer = self.alice.submit([request])
        transfer.wait()
        ticks, ended = [0], threading.Event()

        def tick():
            while not ended.is_set():
                ticks[0] += 1
                time.sleep(0)

        def let_go():
            remote = self.peer.lookup("held by nobody else")
            before = ticks[0]
            del remote
            return ticks[0] != before

        def runs(call):
            before = ticks[0]
            call()
            return ticks[0] != before

        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        thread = threading.Thread(target=tick)
        thread.start()
        try:
            sys.setswitchinterval(1000)
            for call in (self.alice.metrics, lambda: repr(self.alice), lambda: self.alice.explain(self.peer), self.peer.explain,
                         lambda: self.alice.explain(request), lambda: self.alice.explain(transfer), transfer.explain):
                self.assertTrue(any(runs(call) for _ in range(10_000)), call)
            self.assertTrue(any(let_go() for _ in range(10_000)), "the end of a RemoteRegion")
            self.assertTrue(other.registered)
        finally:
            ended.set()
            thread.join()


if __name__ == "__main__":
    unittest.main()
