"""What Python names as memory moves as it is: arrays, views, pages, both ways, and is refused with a reason when it cannot."""

import array
import ctypes
import gc
import time
import unittest
import unittest.mock
import weakref

import fairway
import numpy as np

from support import Pair


class Moves(Pair):
    def test_a_write_of_no_bytes_is_its_notification_alone(self):
        remote = self.offer(np.arange(64, dtype=np.uint8), "rwa")
        self.assertEqual(self.alice.write(None, remote, notify=(7, b"alone")).wait(60), 0)
        self.assertEqual(self.alice.write(b"", remote[0:0], notify=8).wait(60), 0)
        self.alice.write(None, remote, notify=fairway.counter(5)).wait(60)
        self.alice.submit([fairway.Request.write(None, remote, notify=9)]).wait(60)
        self.alice.write(None, remote, notify=fairway.signal(remote[8:16], 42)).wait(60)
        notes = [self.bob.wait_notification(60) for _ in range(3)]
        self.assertEqual([(note.immediate, note.message) for note in notes], [(7, b"alone"), (8, b""), (9, b"")])
        self.assertEqual(self.bob.wait_counter(5, 1, 60), 1)
        into = np.zeros(64, np.uint8)
        self.alice.read(into, remote).wait(60)
        self.assertEqual((int(into[8:16].view(np.uint64)[0]), into[:8].tolist()), (42, list(range(8))))
        region = self.alice.register(bytearray(8), "")
        for local in (b"", None, region[4:4], np.zeros((0, 3))):
            self.assertEqual(self.alice.write(local, remote[0:0], notify=10).wait(60), 0)
            self.assertEqual(self.bob.wait_notification(60).immediate, 10)
        for local, there in ((None, remote), (b"", remote[0:0]), (region[8:8], remote[0:0])):
            with self.assertRaisesRegex(fairway.InvalidArgument, "no bytes to move, and no notify="):
                self.alice.write(local, there)
        with self.assertRaises(fairway.InvalidArgument):
            self.alice.write(b"", remote, notify=1)

    def test_a_deadline_of_0_or_less_has_passed_and_none_is_none(self):
        remote = self.offer(np.zeros(64, np.uint8), "w")
        peer = self.bob.connect(self.alice.address)
        for passed in (0, 0.0, -0.25, -1e30, float("-inf")):
            with self.assertRaises(fairway.DeadlineExceeded):
                self.alice.write(bytes(64), remote, deadline=passed).wait(60)
            receive = peer.receive(1, bytearray(8), deadline=passed)
            with self.assertRaises(fairway.DeadlineExceeded):
                receive.wait(60)
        self.assertEqual(self.alice.write(bytes(64), remote, deadline=None).wait(60), 64)

    def test_an_array_goes_and_comes_back(self):
        out = np.arange(4096, dtype=np.float32)
        inbox = np.zeros(4096, dtype=np.float32)
        remote = self.offer(inbox, "rw")
        self.assertEqual(self.alice.write(out, remote).wait(), out.nbytes)
        np.testing.assert_array_equal(inbox, out)
        back = np.zeros_like(out)
        self.assertEqual(self.alice.read(back, remote).wait(), out.nbytes)
        np.testing.assert_array_equal(back, out)

    def test_strided_views_move_without_a_copy(self):
        whole = np.arange(64 * 64, dtype=np.int32).reshape(64, 64)
        inbox = np.zeros((64, 64), dtype=np.int32)
        remote = self.offer(inbox, "w").array((64, 64), "int32")
        request = fairway.Request.write(whole[:, 8:24], remote[:, 40:56])
        self.assertEqual(request.layout, "strided")
        self.alice.submit([request]).wait()
        np.testing.assert_array_equal(inbox[:, 40:56], whole[:, 8:24])
        self.assertEqual(inbox.sum(), whole[:, 8:24].sum())  # nothing else was touched

    def test_views_of_more_dimensions_move_as_pages(self):
        whole = np.arange(8 * 6 * 4 * 10, dtype=np.int16).reshape(8, 6, 4, 10)
        inbox = np.zeros_like(whole)
        remote = self.offer(inbox, "w").array(whole.shape, "int16")
        cases = [np.s_[1:7:2, 2:5, :, 3:9], np.s_[:, ::2, 1:3], np.s_[3], np.s_[..., 4], np.s_[::-1, :, 1:3, 2:4]]
        for view in cases:
            with self.subTest(view=view):
                inbox[:] = 0
                self.alice.write(whole[view], remote[view]).wait()
                expected = np.zeros_like(whole)
                expected[view] = whole[view]
                np.testing.assert_array_equal(inbox, expected)

    def test_shapes_may_differ_where_the_bytes_agree(self):
        whole = np.arange(32 * 16, dtype=np.uint8).reshape(32, 16)
        inbox = np.zeros(32 * 8, dtype=np.uint8)
        self.alice.write(whole[:, 4:12], self.offer(inbox, "w")).wait()
        np.testing.assert_array_equal(inbox.reshape(32, 8), whole[:, 4:12])

    def test_pages_by_index_arrays(self):
        pages = np.random.default_rng(1).integers(0, 255, (100, 512), dtype=np.uint8)
        inbox = np.zeros_like(pages)
        remote = self.offer(inbox, "rw")
        order = np.random.default_rng(2).permutation(100)
        target = np.arange(100)
        self.assertEqual(self.alice.write_pages(pages, remote, order, target, 512).wait(), pages.nbytes)
        np.testing.assert_array_equal(inbox, pages[order])
        for here, there in (
            (list(range(100)), order.astype(np.int32)),
            (target.astype(np.uint8), np.repeat(order, 2).astype(np.int16)[::2]),
            (target.astype(np.uint32)[::-1], order[::-1]),
        ):
            back = np.zeros_like(pages)
            self.alice.read_pages(back, remote, here, there, 512).wait()
            np.testing.assert_array_equal(back, inbox[order])

    def test_remote_arrays_are_named_as_in_numpy(self):
        remote = self.offer(np.zeros(64, np.uint8), "rw")
        for dtype, size in (("f4", 4), ("i8", 8), ("u1", 1), ("c16", 16), ("float32", 4), (np.dtype("f2"), 2), (float, 8)):
            self.assertEqual(remote.array((2, 2), dtype).itemsize, size)
        self.assertEqual(remote.array(np.array([4, 2]), "f4").shape, (4, 2))
        self.assertEqual(remote.array(np.int64(4), "f4").shape, (4,))

    def test_index_arrays_are_kept_until_completion(self):
        pages = np.ones((50, 64), np.uint8)
        remote = self.offer(np.zeros((50, 64), np.uint8), "w")
        index = np.arange(50)
        seen = weakref.ref(index)
        transfer = self.alice.write_pages(pages, remote, index, index, 64)
        del index
        gc.collect()
        self.assertIsNotNone(seen())
        transfer.wait()
        gc.collect()
        self.assertIsNone(seen())

    def test_other_kinds_of_memory(self):
        inbox = bytearray(16)
        remote = self.offer(inbox, "rw")
        for local in (b"0123456789abcdef", bytearray(b"fedcba9876543210"), array.array("d", [1.5, 2.5]), memoryview(b"x" * 16), (ctypes.c_char * 16)(*b"sixteen bytes :)"), ctypes.create_string_buffer(b"fifteen bytes..")):
            with self.subTest(kind=type(local).__name__):
                self.alice.write(local, remote).wait()
                self.assertEqual(bytes(inbox), bytes(local))
        region = self.alice.allocate(16)
        memoryview(region)[:] = b"from the region!"
        self.alice.write(region, remote).wait()
        self.assertEqual(inbox, b"from the region!")
        self.alice.write(region[4:8], remote[0:4]).wait()
        self.assertEqual(inbox[:4], b" the")

    def test_dlpack_both_ways(self):
        region = self.bob.allocate(1024, "w")
        seen = np.from_dlpack(region)
        self.assertEqual(seen.shape, (1024,))
        self.bob.publish("lent", region)
        remote = self.peer.lookup("lent")

        class Tensor:  # shows its memory by DLPack alone, as torch does
            def __init__(self, of):
                self.of = of
                self.__dlpack__ = of.__dlpack__
                self.__dlpack_device__ = of.__dlpack_device__

        values = np.arange(256, dtype=np.float32)
        self.alice.write(Tensor(values), remote).wait()
        np.testing.assert_array_equal(seen.view(np.float32), values)
        with self.assertRaisesRegex(fairway.InvalidArgument, "still alive"):
            region.deregister()
        del seen
        gc.collect()
        region.deregister()

    def test_several_requests_are_one_transfer(self):
        rows = np.arange(1000 * 8, dtype=np.int64).reshape(1000, 8)
        inbox = np.zeros_like(rows)
        remote = self.offer(inbox, "w")
        requests = [fairway.Request.write(rows[i], remote[i * 64 : i * 64 + 64]) for i in range(1000)]
        for _ in range(3):  # and again
            inbox[:] = 0
            transfer = self.alice.submit(requests)
            self.assertEqual(len(transfer), 1000)
            self.assertEqual(transfer.wait(), rows.nbytes)
            np.testing.assert_array_equal(inbox, rows)

    def test_more_requests_than_the_queue_holds(self):
        with fairway.Engine(max_transfers=64) as small:
            peer = small.connect(self.bob.address)
            counts = np.zeros(1, np.uint64)
            region = self.bob.register(counts, "rwa")
            self.bob.publish("counts", region)
            remote = peer.lookup("counts")
            add = fairway.Request.fetch_add(remote[0:8], 1)
            small.submit([add] * 1000).wait()
            self.assertEqual(counts[0], 1000)
            for _ in range(1000):
                small.fetch_add(remote, 1)  # nobody waits for them
            deadline = 2000
            small.fetch_add(remote, 1).wait(60)
            self.assertLessEqual(counts[0], deadline + 1)

    def test_a_batch_longer_than_the_queue_ends_once_with_its_last_request(self):
        with fairway.Engine(max_transfers=2) as small:
            peer = small.connect(self.bob.address)
            words = np.zeros(50, np.uint64)
            region = self.bob.register(words, "w")
            self.bob.publish("words", region)
            remote = peer.lookup("words")
            seen = []
            batch = [
                fairway.Request.write(b"12345678", remote[8 * i : 8 * i + 8], callback=lambda done: seen.append(np.count_nonzero(words)))
                for i in range(50)
            ]
            transfer = small.submit(batch)
            self.assertEqual(seen, [])
            transfer.wait(60)
            self.assertEqual(seen, [50] * 50)

    def test_notifications_counters_signals_atomics(self):
        words = np.zeros(8, np.uint64)
        remote = self.offer(words, "rwa")
        note_from = self.alice.write(b"12345678", remote[0:8], notify=(7, b"hello"))
        note_from.wait()
        note = self.bob.wait_notification(60)
        self.assertEqual((note.immediate, note.message), (7, b"hello"))
        self.alice.write(b"12345678", remote[0:8], notify=fairway.counter(3)).wait()
        self.assertEqual(self.bob.wait_counter(3, 1, timeout=60), 1)
        self.alice.write(b"12345678", remote[0:8], notify=fairway.signal(remote[16:24], 5, add=True)).wait()
        self.assertEqual(words[2], 5)
        self.assertEqual(self.alice.fetch_add(remote[16:24], 2).wait(), 5)
        self.assertEqual(self.alice.compare_swap(remote[16:24], 7, 100).wait(), 7)
        self.assertEqual(words[2], 100)

    def test_send_and_receive(self):
        into = np.zeros(100, np.float64)
        alice = self.bob.connect(self.alice.address)
        receive = alice.receive(9, into)
        self.peer.send(9, np.arange(50, dtype=np.float64)).wait()
        self.assertEqual(receive.wait(), 400)
        np.testing.assert_array_equal(into[:50], np.arange(50))

    def test_local_completion_is_for_sends(self):
        into = np.zeros(1, np.float64)
        alice = self.bob.connect(self.alice.address)
        sent = np.ones(1)
        self.peer.send(9, sent, local_completion=True).wait()  # its receive comes later
        sent[0] = 2
        self.assertEqual(alice.receive(9, into).wait(), 8)
        self.assertEqual(into[0], 1)
        remote = self.offer(bytearray(8), "w")
        with self.assertRaises(fairway.InvalidArgument):
            self.alice.write(sent, remote, local_completion=True)

    def test_callbacks_run_from_poll(self):
        seen = []
        remote = self.offer(bytearray(8), "w")
        transfer = self.alice.write(b"callback", remote, callback=seen.append)
        self.assertEqual(seen, [])
        while not seen:
            self.alice.poll()
        self.assertEqual(seen[0].result(), 8)
        self.assertTrue(transfer.done)

    def test_a_callback_that_raises_keeps_no_other_from_being_called(self):
        remote = self.offer(bytearray(8 * 64), "w")
        called = []

        def call(number):
            called.append(number)
            raise ZeroDivisionError(number)

        for i in range(64):
            self.alice.write(b"callback", remote[8 * i : 8 * i + 8], notify=fairway.counter(9), callback=lambda _, i=i: call(i))
        self.bob.wait_counter(9, 64, 60)
        self.alice.write(b"callback", remote[0:8], callback=called.append)
        with unittest.mock.patch("sys.unraisablehook") as unraisable:  # of the others: one is raised by who polls
            raised, deadline = 0, time.monotonic() + 60
            while len(called) < 65 and time.monotonic() < deadline:
                try:
                    self.alice.poll()
                except ZeroDivisionError:
                    raised += 1
        self.assertEqual(sorted(number for number in called if isinstance(number, int)), list(range(64)))
        self.assertEqual((len(called), raised + unraisable.call_count), (65, 64))

    def test_what_it_says(self):
        remote = self.offer(np.zeros(1 << 20, np.uint8), "rw")
        transfer = self.alice.write(np.ones(1 << 20, np.uint8), remote)
        transfer.wait()
        self.assertIn("loopback", str(self.alice.explain(transfer)))
        self.assertIn("loopback", repr(self.alice.explain(fairway.Request.write(np.ones(1 << 20, np.uint8), remote))))
        self.assertRegex(repr(self.alice), r"<fairway.Engine 'alice' at [\d.:]+: 1 peer, \d+ regions?, \d+ transfers? in use>")
        self.assertRegex(repr(remote), r"<fairway.RemoteRegion 1 MiB of host memory, 'rw'>")
        self.assertRegex(repr(self.bob.allocate(5000, "r")), r"<fairway.Region 4.9 KiB of host memory at 0x[0-9a-f]+, peers: 'r'>")
        self.assertEqual(repr(transfer), "<fairway.Transfer of 1 request, ok>")
        metrics = self.alice.metrics()
        self.assertEqual(metrics["peers"][0]["transfers_ok"], 1)
        self.assertGreaterEqual(metrics["links"][0]["bytes_out"], 1 << 20)


if __name__ == "__main__":
    unittest.main()
