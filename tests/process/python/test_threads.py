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
ROUNDS, TURNS, THREADS = (200, 2000, 6) if LONG else (6, 150, 4)


class AtRandom:
    """What one thread does, turn after turn, on a pair of engines."""

    def __init__(self, seed, here, there, peer, remote, shared):
        self.chance = random.Random(seed)
        self.here, self.there, self.peer, self.remote, self.shared = here, there, peer, remote, shared
        self.kept = []
        self.verbs = [self.write_dropped] * 6 + [self.read_dropped] * 4 + [self.write_polled] * 4 + [
            self.write_kept, self.wait, self.done, self.poll, self.batch, self.register, self.deregister, self.look_up, self.observe, self.cancel]

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
        self.regions, self.seen = [], []


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

        def work(number):
            player = AtRandom(f"{seed} {number}", here, there, peer, remote, shared)
            for _ in range(TURNS):
                try:
                    player.turn()
                except (fairway.Revoked, fairway.TimedOut, fairway.NotFound, fairway.Cancelled):
                    pass  # another thread has ended it
                except fairway.QueueFull:
                    player.done()
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


class Waiting(Pair):
    def test_other_threads_run_while_an_engine_is_looked_at(self):
        """Each of these asks the workers and waits. A thread that holds the interpreter's lock meanwhile stalls all others: here
        one of them serves the worker itself (progress='caller'), so nothing would ever answer."""
        script = """
            import fairway, threading, time
            with fairway.Engine(progress='caller') as one, fairway.Engine() as two:
                region = two.allocate(64, 'rw')
                two.publish('word', region)
                peer = one.connect(two.address)
                remote = peer.lookup('word')
                ended = threading.Event()
                def look():
                    for _ in range(200):
                        one.metrics(), one.port_counters(), repr(one), one.explain(peer), peer.explain()
                        peer.lookup('word')  # and let go
                    ended.set()
                thread = threading.Thread(target=look)
                thread.start()
                while not ended.is_set():
                    one.poll()
                thread.join()
                print('looked')
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.stdout, done.returncode), ("looked\n", 0), done.stderr)


class AtTheEnd(unittest.TestCase):
    """The interpreter ends beside threads that are in the engine, or have started something that goes on."""

    def ends(self, script, expected="", times=5):
        for _ in range(40 if LONG else times):
            done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120)
            self.assertEqual((done.returncode, done.stdout), (0, expected), done.stderr)

    def test_daemon_threads_that_wait_in_an_engine(self):
        self.ends("""
            import fairway, threading, time
            one, two = fairway.Engine(), fairway.Engine()
            peer = one.connect(two.address)
            def wait(call):
                while True:
                    try:
                        call()
                    except fairway.Error:
                        time.sleep(0.001)
            for call in (one.wait_notification, one.wait_peer_event, lambda: one.wait_counter(1, 1), peer.receive(1, bytearray(8)).wait, one.metrics):
                threading.Thread(target=wait, args=(call,), daemon=True).start()
        """)

    def test_a_communicator_whose_making_was_interrupted(self):
        self.ends("""
            import fairway, signal, socket
            listener = socket.create_server(('127.0.0.1', 0))  # accepts, and says nothing
            engine = fairway.Engine()
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                fairway.Communicator(engine, 0, [engine.address, '127.0.0.1:%d' % listener.getsockname()[1]], timeout=1.0)
            except KeyboardInterrupt:
                print('interrupted')
        """, "interrupted\n", times=2)

    def test_an_operation_outlives_its_communicator(self):
        self.ends("""
            import fairway, numpy
            engine = fairway.Engine()
            group = fairway.Communicator(engine, 0, [engine.address])
            operation = group.all_reduce(numpy.ones(4), wait=False)
            operation.wait()
            del group
            engine.close()  # at once: it does not wait for a communicator that nobody can close
            print('closed')
        """, "closed\n", times=2)

    def test_a_callback_that_lets_go_of_the_last_of_a_group(self):
        self.ends("""
            import fairway, numpy
            engine = fairway.Engine()
            group = fairway.Communicator(engine, 0, [engine.address])
            for _ in range(50):
                group.all_reduce(numpy.ones(4), wait=False).add_done_callback(lambda done: None)
            del group
        """)


if __name__ == "__main__":
    unittest.main()
