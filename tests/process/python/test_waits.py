"""Waits for several transfers and for all to a peer, completion queues, counter spaces, probes, and where a region's end is."""

import gc
import signal
import threading
import time
import unittest
import weakref

import fairway
import numpy as np

from support import Pair


class Waits(Pair):
    def setUp(self):
        super().setUp()
        self.back = self.bob.connect(self.alice.address)

    def receives(self, count, **options):
        """alice's, each of its own tag and memory."""
        return [self.peer.receive(tag, bytearray(8), **options) for tag in range(count)]

    def test_any_gives_the_one_that_is_done(self):
        transfers = self.receives(4)
        with self.assertRaisesRegex(fairway.TimedOut, "still in flight"):
            self.alice.wait_any(transfers, 0.02)
        for tag in (2, 0, 3, 1):
            self.back.send(tag, bytes(tag + 1)).wait(60)
            left = [one for one in transfers if one is not None]
            done = self.alice.wait_any(left, 60)
            self.assertIs(done, transfers[tag])
            self.assertEqual(done.result(), tag + 1)
            transfers[tag] = None

    def test_any_gives_the_first_of_several_and_again_until_it_is_left_out(self):
        transfers = self.receives(3)
        for tag in (2, 1):
            self.back.send(tag, b"x").wait(60)
        self.alice.wait_all(transfers[1:], 60)
        for _ in range(2):
            self.assertIs(self.alice.wait_any(transfers, 60), transfers[1])
        self.assertIs(self.alice.wait_any([transfers[0], transfers[2], transfers[2]], 60), transfers[2])

    def test_any_of_transfers_that_are_polled_and_batches(self):
        remote = self.offer(bytearray(64), "rw")
        called = []
        slow = self.peer.receive(1, bytearray(8))
        polled = self.peer.receive(2, bytearray(8), callback=called.append)
        batch = self.alice.submit([fairway.Request.write(bytes(8), remote[0:8], after=slow)] * 3)
        self.back.send(2, b"ab").wait(60)
        self.assertIs(self.alice.wait_any([slow, batch, polled], 60), polled)
        self.assertEqual([one.result() for one in called], [2])
        self.back.send(1, b"c").wait(60)
        self.assertIs(self.alice.wait_any([batch, slow, batch], 60), batch)  # the first of both
        self.assertIs(self.alice.wait_any([slow, batch], 60), slow)
        self.assertEqual(batch.result(), 24)

    def test_any_by_several_threads(self):
        transfers = self.receives(8)
        given = [[] for _ in range(4)]

        def work(number):
            left = list(transfers)
            while left:
                done = self.alice.wait_any(left, 60)
                left.remove(done)
                given[number].append(done)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for tag in range(8):
            self.back.send(tag, bytes(tag + 1)).wait(60)
        for thread in threads:
            thread.join()
        for each in given:
            self.assertEqual(sorted(one.result() for one in each), list(range(1, 9)))

    def test_any_of_one_that_fails_gives_it(self):
        remote = self.offer(bytearray(64), "rw")
        late = self.alice.write(bytes(8), remote[0:8], deadline=-1)
        self.assertIs(self.alice.wait_any([late], 60), late)
        self.assertRaises(fairway.DeadlineExceeded, late.result)

    def test_all_gives_each_result_or_the_first_error_and_all_failures(self):
        remote = self.offer(bytearray(64), "rw")
        good = [self.alice.write(bytes(size), remote[0:size]) for size in (8, 16, 24)]
        self.assertEqual(self.alice.wait_all(good, 60), [8, 16, 24])
        self.assertEqual(self.alice.wait_all(iter(good), 60), [8, 16, 24])
        self.assertEqual(self.alice.wait_all([]), [])
        mixed = [good[0], self.alice.write(bytes(8), remote[0:8], deadline=0), good[0], self.alice.write(bytes(8), remote[0:8], deadline=0)]
        with self.assertRaises(fairway.DeadlineExceeded) as caught:
            self.alice.wait_all(mixed, 60)
        self.assertEqual((caught.exception.index, [index for index, _ in caught.exception.failures]), (1, [1, 3]))

    def test_all_that_is_not_done_in_time_goes_on(self):
        transfers = self.receives(3)
        self.back.send(1, b"xy").wait(60)
        with self.assertRaises(fairway.TimedOut):
            self.alice.wait_all(transfers, 0.02)
        for tag in (0, 2):
            self.back.send(tag, b"x").wait(60)
        self.assertEqual(self.alice.wait_all(transfers, 60), [1, 2, 1])

    def test_waits_for_what_is_no_transfer(self):
        one = self.receives(1)[0]
        theirs = self.back.receive(1, bytearray(8))
        for call in (self.alice.wait_any, self.alice.wait_all):
            for given, words in ((5, "list of Transfers, not 5"), ("ab", "list of Transfers, not 'ab'"), ([one, 3], "one is of type int"), ([theirs], "another engine's")):
                with self.assertRaisesRegex(fairway.InvalidArgument, words):
                    call(given)
        with self.assertRaisesRegex(fairway.InvalidArgument, "no transfers to wait for"):
            self.alice.wait_any([])

    def test_control_c_reaches_a_batch_whose_requests_go_on_completing(self):
        remote = self.offer(bytearray(64), "rw")
        pending = self.receives(64)
        batch = self.alice.submit([fairway.Request.write(bytes(8), remote[0:8], after=one) for one in pending])
        stop = threading.Event()

        def feed():  # each in less than the 50 ms after which a wait looks around
            for tag in range(64):
                self.back.send(tag, b"x").wait(60)
                if stop.wait(0.02):
                    return

        thread = threading.Thread(target=feed)
        old = signal.signal(signal.SIGALRM, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        thread.start()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with self.assertRaises(KeyboardInterrupt):
            batch.wait(60)
        self.assertFalse(batch.done)
        stop.set()
        thread.join()

    def test_flush_and_drain_end_with_what_was_submitted_before(self):
        remote = self.offer(bytearray(64), "rw")
        first = self.receives(1)[0]
        self.alice.flush(self.peer, 60)  # receives are not waited for
        write = self.alice.write(bytes(8), remote[0:8], after=first)
        for settle in (lambda seconds: self.alice.flush(self.peer, seconds), self.alice.drain):
            for seconds in (-1, 0, 0.01, 0.07):
                with self.assertRaisesRegex(fairway.TimedOut, "still in flight, one of them to"):
                    settle(seconds)
        ends = [threading.Thread(target=call) for call in (lambda: self.alice.flush(self.peer), self.alice.drain)]
        for thread in ends:
            thread.start()
        self.back.send(0, b"x").wait(60)
        for thread in ends:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertTrue(write.done)

    def test_a_flush_beside_a_thread_that_never_stops_submitting_ends(self):
        """A flush that was cut into slices would wait for what came in each of them."""
        remote = self.offer(bytearray(64), "rw")
        gates = [self.peer.receive(tag, bytearray(8)) for tag in range(2)]
        held = self.alice.write(bytes(8), remote[0:8], after=gates[0])
        done = threading.Event()
        thread = threading.Thread(target=lambda: (self.alice.flush(self.peer), done.set()))
        thread.start()
        for _ in range(5):  # while it waits, for longer than a slice: those that end only behind it
            self.assertFalse(done.wait(0.03))
            self.alice.write(bytes(8), remote[0:8], after=gates[1])
        self.back.send(0, b"x").wait(60)
        self.assertTrue(done.wait(60))
        self.assertTrue(held.done)
        self.back.send(1, b"x").wait(60)
        thread.join()

    def test_a_flush_of_no_peer(self):
        for peer, words in ((5, "is a Peer, from Engine.connect, not int"), (None, "not NoneType"), (self.back, "another engine's")):
            with self.assertRaisesRegex(fairway.InvalidArgument, words):
                self.alice.flush(peer)
        self.peer.disconnect()
        try:
            self.alice.flush(self.peer, 60)  # ok, or why the session has ended: all have completed
        except fairway.Error as error:
            self.assertNotIsInstance(error, fairway.TimedOut)
        self.alice.close()
        self.assertRaises(fairway.Error, self.alice.probe, 1, timeout=60)

    def test_probe_finds_a_message_and_takes_nothing(self):
        self.assertIsNone(self.alice.probe(7))
        self.assertIsNone(self.alice.probe(7, self.peer, 0.06))
        threading.Timer(0.08, lambda: self.back.send(7, b"12345")).start()
        found = self.alice.probe(7, timeout=60)
        self.assertEqual((found.tag, found.nbytes, found.peer), (7, 5, self.peer))
        self.assertEqual(self.alice.probe(7, self.peer).nbytes, 5)
        self.assertIsNone(self.alice.probe(8))
        buffer = bytearray(found.nbytes)
        self.assertEqual(found.peer.receive(found.tag, buffer).wait(60), 5)
        self.assertEqual(buffer, b"12345")
        self.assertIsNone(self.alice.probe(7))

    def test_the_end_of_a_region(self):
        region = self.alice.register(bytearray(64), "w")
        self.assertEqual(self.alice.fence_state(region), "registered")
        region.deregister()
        self.assertEqual(self.alice.fence_state(region), "fenced")
        for given, words in ((5, "is a Region, from register or allocate, not int"), (self.bob.register(bytearray(8)), "another engine")):
            with self.assertRaisesRegex(fairway.InvalidArgument, words):
                self.alice.fence_state(given)
        kept = self.alice.register(bytearray(64), "w")
        self.alice.close()
        self.assertEqual(self.alice.fence_state(kept), "fenced")

    def test_metrics_are_there_while_the_engine_closes_and_after(self):
        found = self.alice.metrics()
        self.assertEqual(found["peers"][0]["id"], self.peer.id)
        self.assertIn(self.peer.id, [link["peer"] for link in found["links"]])
        closing = threading.Thread(target=self.alice.close)
        closing.start()
        while closing.is_alive():
            self.alice.metrics()
        closing.join()
        self.assertEqual(self.alice.metrics()["transfers_in_use"], 0)


class Queues(Pair):
    def setUp(self):
        super().setUp()
        self.remote = self.offer(bytearray(64), "rw")
        self.back = self.bob.connect(self.alice.address)

    def test_a_queue_gives_its_transfers_and_nobody_else_does(self):
        with self.alice.make_queue(8) as one, self.alice.make_queue(8) as two:
            first = self.alice.write(bytes(8), self.remote[0:8], queue=one)
            other = self.alice.write(bytes(16), self.remote[0:16], queue=two)
            self.alice.drain(60)
            self.assertEqual(self.alice.poll(), 0)
            self.assertFalse(first.done)
            found = one.wait(60)
            self.assertEqual((found, hash(found), found.result(), first.result()), (first, hash(first), 8, 8))
            self.assertNotEqual(found, other)
            self.assertEqual(one.poll(), [])
            self.assertEqual([each.result() for each in two.poll()], [16])

    def test_nobody_waits_past_a_queue(self):
        queue = self.alice.make_queue(8)
        gate = self.peer.receive(1, bytearray(8))
        held = self.alice.write(bytes(8), self.remote[0:8], queue=queue, after=gate)
        for call in (held.wait, lambda: self.alice.wait_any([held]), lambda: self.alice.wait_all([held]), lambda: held.add_done_callback(print)):
            with self.assertRaisesRegex(fairway.InvalidArgument, r"queue, whose poll\(\) and wait\(\)"):
                call()
        self.assertRaises(fairway.TimedOut, queue.wait, 0.02)
        with self.assertRaisesRegex(fairway.InvalidArgument, "in flight"):
            queue.end()
        self.back.send(1, b"x").wait(60)
        self.assertEqual(queue.wait(60), held)
        self.assertEqual(held.wait(60), 8)
        queue.end()
        queue.end()
        self.assertRaises(fairway.NotFound, queue.wait, 60)
        self.assertRaises(fairway.NotFound, self.alice.write, bytes(8), self.remote[0:8], queue=queue)

    def test_a_full_queue_takes_no_more_until_it_is_polled(self):
        queue = self.alice.make_queue(2)
        for _ in range(2):
            self.alice.write(bytes(8), self.remote[0:8], queue=queue)
        with self.assertRaises(fairway.QueueFull):
            self.alice.write(bytes(8), self.remote[0:8], queue=queue)
        with self.assertRaises(fairway.QueueFull) as caught:
            self.alice.submit([fairway.Request.write(bytes(8), self.remote[0:8], queue=queue)] * 2)
        self.assertEqual((caught.exception.index, len(caught.exception.transfer)), (0, 0))
        self.assertEqual([queue.wait(60).result() for _ in range(2)], [8, 8])
        self.alice.write(bytes(8), self.remote[0:8], queue=queue)
        queue.wait(60)

    def test_a_batch_comes_once_when_all_of_it_is_done(self):
        with fairway.Engine(max_transfers=4) as small:
            peer = small.connect(self.bob.address)
            remote = peer.lookup("region 1")
            queue = small.make_queue(100)
            request = fairway.Request.write(bytes(8), remote[0:8], queue=queue)
            batches = [small.submit([request] * 20) for _ in range(2)]  # more than the engine holds: it makes room by the queue
            self.assertEqual({queue.wait(60), queue.wait(60)}, set(batches))
            self.assertEqual([batch.result() for batch in batches], [160, 160])
            with self.assertRaisesRegex(fairway.InvalidArgument, "name one queue"):
                small.submit([request, fairway.Request.write(bytes(8), remote[0:8])])

    def test_a_queue_is_of_its_engine_and_takes_no_callback(self):
        queue = self.bob.make_queue(4)
        for options, words in (({"queue": queue}, "another engine's queue"), ({"queue": self.alice.make_queue(4), "callback": print}, "queue and callback")):
            with self.assertRaisesRegex(fairway.InvalidArgument, words):
                self.alice.write(bytes(8), self.remote[0:8], **options)
        self.assertRaises(fairway.Error, self.alice.make_queue, 0)

    def test_several_threads_poll_one_queue_and_each_transfer_comes_once(self):
        queue = self.alice.make_queue(1000)
        given, began = [], 400

        def take():
            while len(given) < began:
                try:
                    given.append(queue.wait(0.05))
                except fairway.TimedOut:
                    pass

        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        started = {self.alice.write(bytes(8), self.remote[0:8], queue=queue) for _ in range(began)}
        for thread in threads:
            thread.join()
        self.assertEqual((len(given), set(given)), (began, started))

    def test_a_queue_that_is_dropped_keeps_what_its_transfers_need_and_ends_with_them(self):
        gate = self.peer.receive(1, bytearray(8))
        source = np.ones(8, np.uint8)
        alive = weakref.ref(source)
        self.alice.write(source, self.remote[0:8], queue=self.alice.make_queue(4), after=gate)
        del source
        gc.collect()
        self.assertIsNotNone(alive())
        self.back.send(1, b"x").wait(60)
        deadline = time.monotonic() + 60
        while alive() is not None and time.monotonic() < deadline:
            self.alice.write(bytes(8), self.remote[0:8]).wait(60)
        self.assertIsNone(alive())
        kept = [self.alice.make_queue(1) for _ in range(64)]  # all there can be: the dropped one's place is free
        self.assertEqual(len(kept), 64)

    def test_a_closed_engine_gives_what_was_in_its_queues(self):
        queue = self.alice.make_queue(4)
        held = self.alice.write(bytes(8), self.remote[0:8], queue=queue, after=self.peer.receive(1, bytearray(8)))
        caught = []
        waiter = threading.Thread(target=lambda: caught.append(queue.wait(60)))
        waiter.start()
        self.alice.close()
        waiter.join(60)
        self.assertEqual(caught, [held])
        self.assertRaises(fairway.Error, held.result)
        self.assertRaises(fairway.Closed, queue.wait, 60)
        self.assertEqual(queue.poll(), [])
        queue.end()

    def test_an_exception_in_the_block_is_not_hidden_by_the_queues_end(self):
        with self.assertRaisesRegex(KeyError, "mine"):
            with self.alice.make_queue(4) as queue:
                self.alice.write(bytes(8), self.remote[0:8], queue=queue)
                raise KeyError("mine")

    def test_await_of_a_transfer_that_a_queue_gives_says_so(self):
        import asyncio

        async def main():
            queue = self.alice.make_queue(4)
            held = self.alice.write(bytes(8), self.remote[0:8], queue=queue)
            with self.assertRaisesRegex(fairway.InvalidArgument, "names a queue"):
                await held
            return queue.wait(60).result()

        self.assertEqual(asyncio.run(main()), 8)


class Spaces(Pair):
    def test_numbers_of_a_space_are_its_owners_alone(self):
        remote = self.offer(bytearray(64), "rw")
        with self.bob.make_counters(8, 100) as mine, self.bob.make_counters(4) as free:
            self.assertEqual((mine.first, mine.count, free.count), (100, 8, 4))
            with self.assertRaisesRegex(fairway.AlreadyExists, "100"):
                self.bob.make_counters(4, 104)
            self.alice.write(None, remote, notify=(101, b"mine")).wait(60)
            self.alice.write(None, remote, notify=7).wait(60)
            self.alice.write(None, remote, notify=fairway.counter(102)).wait(60)
            self.assertEqual(self.bob.wait_notification(60).immediate, 7)
            note = mine.wait_notification(60)
            self.assertEqual((note.immediate, note.message), (101, b"mine"))
            self.assertEqual((self.bob.poll_notifications(), mine.poll_notifications(), free.poll_notifications()), ([], [], []))
            self.assertEqual(self.bob.wait_counter(102, 1, 60), 1)
            self.assertRaises(fairway.TimedOut, mine.wait_notification, 0.02)
        self.assertIn("released", repr(mine))
        self.assertRaises(fairway.NotFound, mine.wait_notification, 60)
        mine.release()
        self.bob.make_counters(8, 100).release()

    def test_a_release_tells_who_waits(self):
        space = self.bob.make_counters(4)
        caught = []

        def wait():
            try:
                space.wait_notification(60)
            except fairway.Error as error:
                caught.append(error.code)

        waiter = threading.Thread(target=wait)
        waiter.start()
        space.release()
        waiter.join(60)
        self.assertEqual(caught, ["not_found"])


if __name__ == "__main__":
    unittest.main()
