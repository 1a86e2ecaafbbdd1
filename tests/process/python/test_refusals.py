"""Bad input is an exception of its kind, which names what is wrong; never a crash and never a wrong byte."""

import mmap
import os
import pickle
import random
import resource
import socket
import threading
import unittest
from unittest import mock

import fairway
import numpy as np

from support import Pair


class Refusals(Pair):
    def refuses(self, kind, words, call, *arguments, **options):
        with self.assertRaisesRegex(kind, words):
            call(*arguments, **options)

    def test_memory_that_cannot_be_registered(self):
        whole = np.zeros((8, 8), np.float32)
        self.refuses(fairway.InvalidArgument, "not contiguous", self.alice.register, whole[:, 2:4], "r")
        self.refuses(fairway.InvalidArgument, "0 bytes", self.alice.register, np.zeros(0), "r")
        self.refuses(fairway.InvalidArgument, "Python objects", self.alice.register, np.array([object()]), "r")
        self.refuses(fairway.InvalidArgument, "shows no memory", self.alice.register, 42, "r")
        self.refuses(fairway.AccessDenied, "read-only", self.alice.register, b"abc", "w")
        self.refuses(fairway.InvalidArgument, "letters", self.alice.register, whole, "rx")
        self.refuses(fairway.InvalidArgument, "0 bytes", self.alice.allocate, 0)
        self.refuses(fairway.ResourceExhausted, "TiB", self.alice.allocate, 1 << 50)
        frozen = np.zeros(8)
        frozen.flags.writeable = False
        self.refuses(fairway.AccessDenied, "read-only", self.alice.register, frozen, "w")

    def test_a_machine_that_cannot_be_read(self):
        with self.assertRaisesRegex(fairway.Error, "machine'?: .*/nope"):
            fairway.Engine(machine="/nope")
        self.refuses(fairway.Unsupported, "machine'?: .*not a Fairway snapshot", fairway.Engine, machine=__file__)

    def test_devices_that_nobody_has(self):
        class Elsewhere:
            def __dlpack_device__(self):
                return (10, 0)  # ROCm

            def __dlpack__(self):
                raise AssertionError("must not be asked")

        self.refuses(fairway.Unsupported, "kind 10", self.alice.register, Elsewhere(), "r")

        class Cuda:
            __cuda_array_interface__ = {"shape": (16,), "typestr": "<f4", "data": (0x7000000000, False), "version": 3}

        with self.assertRaises(fairway.Error):
            self.alice.register(Cuda(), "r")
        Cuda.__cuda_array_interface__ = {"shape": (16,), "typestr": "<f4", "data": (0, False), "version": 3}
        self.refuses(fairway.InvalidArgument, "freed", self.alice.register, Cuda(), "r")

    def test_transfers_that_do_not_fit(self):
        remote = self.offer(np.zeros((16, 16), np.float32), "w")
        view = remote.array((16, 16), "float32")
        write = self.alice.write
        self.refuses(fairway.InvalidArgument, "1020 bytes and the remote side 1024", write, np.zeros(255, np.float32), remote)
        self.refuses(fairway.InvalidArgument, "converts nothing", write, np.zeros((16, 16), np.int32), view)
        self.refuses(fairway.InvalidArgument, "converts nothing", write, np.zeros((16, 8), np.float64), view)
        self.refuses(fairway.InvalidArgument, "no bytes to move", write, np.zeros(0, np.float32), remote[0:0])
        self.refuses(fairway.InvalidArgument, "remote side is", write, np.zeros(4), np.zeros(4))
        self.refuses(fairway.AccessDenied, "", self.alice.read, np.zeros(1024, np.uint8), remote)
        self.refuses(fairway.OutOfRange, "reaches", remote.array, (17, 16), "float32")
        self.refuses(fairway.OutOfRange, "reaches", remote.array, (4,), "float32", 1020)
        self.refuses(fairway.OutOfRange, "", remote.array, (1 << 62, 1 << 62), "float32")
        self.refuses(fairway.InvalidArgument, "no dtype", remote.array, (4,), "float33")
        self.refuses(fairway.OutOfRange, "index 16", view.__getitem__, 16)
        self.refuses(fairway.OutOfRange, "3 indices", view.__getitem__, (1, 2, 3))
        self.refuses(fairway.InvalidArgument, "no option 'notfy'", write, np.zeros(256, np.float32), remote, notfy=1)
        self.refuses(fairway.InvalidArgument, "priority", write, np.zeros(256, np.float32), remote, priority="high")
        self.refuses(fairway.InvalidArgument, "256 bytes", write, np.zeros(256, np.float32), remote, notify=(1, b"x" * 257))
        self.refuses(fairway.InvalidArgument, "deadline is seconds", write, np.zeros(256, np.float32), remote, deadline="now")

    def test_targets_that_overlap(self):
        remote = self.offer(np.zeros(64, np.uint8), "rw")
        frozen = np.zeros(64, np.uint8)
        frozen.flags.writeable = False
        self.refuses(fairway.AccessDenied, "read-only", self.alice.read, frozen, remote)
        self.refuses(fairway.AccessDenied, "read-only", self.alice.read, bytes(64), remote)
        window = np.lib.stride_tricks.as_strided(np.zeros(64, np.uint8), (4, 16), (8, 1))
        self.refuses(fairway.InvalidArgument, "more than once", self.alice.read, window, remote)
        self.alice.write(np.broadcast_to(np.arange(16, dtype=np.uint8), (4, 16)), remote).wait()  # a source may repeat
        twice = remote.array((2, 64), "uint8", strides=(0, 1))
        self.refuses(fairway.InvalidArgument, "more than once", self.alice.write, np.zeros((2, 64), np.uint8), twice)

    def test_regions_that_ended(self):
        memory = np.zeros(64, np.uint8)
        region = self.bob.register(memory, "w")
        self.bob.publish("ends", region)
        remote = self.peer.lookup("ends")
        region.deregister()
        with self.assertRaises(fairway.Revoked):
            self.alice.write(b"x" * 64, remote).wait()
        self.refuses(fairway.Revoked, "deregistered", self.bob.describe, region)
        region.deregister()  # again is nothing
        mine = self.alice.allocate(64)
        mine.deregister()
        self.refuses(fairway.Revoked, "deregistered", self.alice.write, mine, remote)
        self.refuses(BufferError, "deregistered", memoryview, mine)

    def test_descriptions_that_were_cut_or_flipped(self):
        region = self.bob.allocate(4096, "rw")
        good = self.bob.describe(region)
        self.assertEqual(self.peer.import_region(good).nbytes, 4096)
        chance = random.Random(24)
        for _ in range(2000):
            bad = bytearray(good)
            for bit in chance.sample(range(8 * len(bad)), chance.randint(1, 3)):
                bad[bit // 8] ^= 1 << bit % 8
            if chance.random() < 0.5:
                bad = bad[: chance.randrange(len(bad))]
            self.refuses(fairway.InvalidArgument, "not a region's description", self.peer.import_region, bytes(bad))
        self.assertEqual(self.peer.import_region(good).nbytes, 4096)

    def test_a_peer_of_another_version(self):
        """A listener whose hello (docs/wire-format.md) names versions that this engine does not speak, or is none at all."""

        def answer(change):
            with listener.accept()[0] as connection:
                hello = bytearray(connection.recv(64, socket.MSG_WAITALL))
                hello[12] = 2  # the listener's role
                hello[16] ^= 1  # a nonce of its own
                change(hello)
                connection.sendall(hello)
                connection.recv(1)

        def later(hello):
            hello[8:12] = b"\xf0\x00\xff\x00"

        def nonsense(hello):
            hello[:8] = b"HTTP/1.1"

        with socket.create_server(("127.0.0.1", 0)) as listener:
            for change, kind, words in ((later, fairway.VersionMismatch, "240"), (nonsense, fairway.ProtocolError, "")):
                thread = threading.Thread(target=answer, args=(change,))
                thread.start()
                self.refuses(kind, words, self.alice.connect, f"127.0.0.1:{listener.getsockname()[1]}", timeout=60)
                thread.join()

    def test_engines_that_are_not_there(self):
        self.refuses(fairway.Unreachable, "", self.alice.connect, "127.0.0.1:1", timeout=1)
        self.refuses(fairway.InvalidArgument, "no option 'nme'", fairway.Engine, nme="x")
        self.refuses(fairway.InvalidArgument, "workers", fairway.Engine, workers="many")
        self.refuses(fairway.InvalidArgument, "progress", fairway.Engine, progress="magic")
        self.refuses(fairway.InvalidArgument, "rdma has no option", fairway.Engine, rdma={"gid": 1})
        self.refuses(fairway.TimedOut, "", self.peer.lookup, "nothing", timeout=0.1)
        self.refuses(TimeoutError, "", self.alice.wait_notification, 0.01)
        for passed in (0, -1, float("-inf")):
            self.refuses(fairway.TimedOut, "", self.alice.wait_notification, passed)
        self.alice.close()
        self.refuses(fairway.Closed, "closed", self.alice.register, bytearray(8), "r")
        self.assertIn("closed", repr(self.alice))

    def test_errors_say_whom_they_concern(self):
        self.bob.close()
        with self.assertRaises(fairway.Error) as caught:
            for _ in range(1000):
                self.peer.send(1, b"x").wait()
        error = caught.exception
        self.assertIsInstance(error, fairway.Error)
        self.assertIn(error.code, ("peer_dead", "stale_incarnation", "link_failed", "closed"))
        self.assertIn("bob", error.peer + str(error))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again), again.peer), (type(error), str(error), error.peer))

    def test_only_requests_are_submitted(self):
        self.refuses(fairway.InvalidArgument, "not int", self.alice.submit, [1])
        self.refuses(fairway.InvalidArgument, "no requests", self.alice.submit, [])
        theirs = fairway.Request.write(b"12345678", self.offer(bytearray(8), "w"))
        self.refuses(fairway.InvalidArgument, "another engine", self.bob.submit, [theirs])
        remote = self.offer(bytearray(64), "rwa")
        self.refuses(fairway.InvalidArgument, "another engine's", self.bob.write, bytes(64), remote)
        self.refuses(fairway.InvalidArgument, "another engine's", self.bob.fetch_add, remote[0:8], 1)

    def test_numbers_that_are_none(self):
        remote = self.offer(np.zeros(8, np.uint64), "rwa")
        word = remote[0:8]
        for call, name, wrong in (
            (self.alice.allocate, "nbytes", (-1, 1.5, "1", 1 << 70, None)),
            (lambda n: self.alice.fetch_add(word, n), "addend", (-1, 1 << 64, 1.0, "1")),
            (lambda n: self.alice.compare_swap(word, 0, n), "desired", (-1,)),
            (lambda n: self.peer.send(n, b"x"), "tag", (-1, 1 << 64, "tag")),
            (lambda n: self.alice.write(bytes(64), remote, notify=n), "number", (-1, 1 << 32)),
            (lambda n: self.alice.write(bytes(64), remote, notify=(n, b"x")), "number", (-1, "x")),
            (fairway.counter, "number", (-1, 1 << 40)),
            (lambda n: fairway.signal(word, n), "value", (-1,)),
            (self.alice.counter, "counter's number", (-1,)),
            (lambda n: self.alice.wait_counter(1, n), "at_least", (-1,)),
            (self.alice.poll_notifications, "most", (-1,)),
            (lambda n: remote.array((4,), "uint8", n), "offset", (-1, 0.5)),
            (lambda n: self.alice.write_pages(bytes(64), remote, [0], [0], n), "page_bytes", (-64, 0.5)),
        ):
            for one in wrong:
                with self.subTest(name=name, wrong=one):
                    self.refuses(fairway.InvalidArgument, f"{name}.* whole number from 0 to .*, not", call, one)

    def test_options_of_the_wrong_kind(self):
        remote = self.offer(np.zeros(8, np.uint64), "rwa")
        theirs = self.bob.connect(self.alice.address).receive(1, bytearray(8))
        two = self.alice.submit([fairway.Request.fetch_add(remote[0:8], 1)] * 2)
        for option, wrong, words in (
            ("after", 3, "is a Transfer, not int"), ("after", theirs, "another engine"), ("after", two, "of 2 requests"),
            ("deadline", "1", "deadline is seconds.*not '1'"), ("deadline", float("nan"), "deadline is seconds"), ("queue", 3, "is a Queue, from Engine.make_queue, not int"), ("checksum", "no", "checksum"),
            ("priority", 3, "priority"), ("callback", 3, "int cannot be"), ("notify", (1, 2), "bytes or a str, not int"), ("notify", 1.5, "notify is"),
        ):
            with self.subTest(option=option, wrong=wrong):
                self.refuses(fairway.InvalidArgument, words, self.alice.write, bytes(64), remote, **{option: wrong})
        two.wait()
        self.refuses(fairway.InvalidArgument, "cannot be", theirs.add_done_callback, 3)
        self.refuses(fairway.InvalidArgument, "timeout is seconds", theirs.cancel, float("nan"))
        self.refuses(fairway.InvalidArgument, "timeout is seconds", theirs.wait, float("nan"))
        for options, words in (({"loopback": 3}, "loopback cannot be 3"), ({"rdma": 3}, "dict"), ({"transports": [1]}, "transports")):
            self.refuses(fairway.InvalidArgument, words, fairway.Engine, **options)
        with mock.patch.dict(os.environ, FAIRWAY_CUDA_DRIVER="/nowhere/libcuda.so"):
            self.refuses(fairway.Unsupported, "driver", self.alice.write, bytes(64), remote, stream=1)

    def test_arguments_of_another_kind_are_named(self):
        region = self.bob.register(bytearray(64), "r")
        receive = self.peer.receive(1, bytearray(8))
        for words, call in (
            ("address is a str, not 5", lambda: self.alice.connect(5)),
            ("timeout is seconds.*not 'a'", lambda: self.alice.connect("127.0.0.1:1", "a")),
            ("timeout is seconds.*not 'a'", lambda: self.alice.wait_notification("a")),
            ("timeout is seconds.*not 'a'", lambda: self.alice.wait_counter(1, 1, "a")),
            ("timeout is seconds.*not 'a'", lambda: self.peer.lookup("x", "a")),
            ("timeout is seconds.*not 'a'", lambda: receive.wait("a")),
            ("timeout is seconds.*not 'a'", lambda: receive.cancel("a")),
            ("timeout is seconds.*not 'a'", lambda: region.deregister("a")),
            ("name is a str, not 5", lambda: self.bob.publish(5, region)),
            ("region is a Region.*not 5", lambda: self.bob.publish("x", 5)),
            ("region is a Region.*not 5", lambda: self.bob.describe(5)),
            ("name is a str, not None", lambda: self.peer.lookup(None)),
            ("description is bytes.*not 'text'", lambda: self.peer.import_region("text")),
            ("requests is a list of Requests, not 5", lambda: self.alice.submit(5)),
        ):
            with self.subTest(words=words):
                self.refuses(fairway.InvalidArgument, words, call)
                self.refuses(ValueError, "", call)

    def test_errors_use_pythons_names(self):
        self.refuses(fairway.InvalidArgument, "option 'listen': \"nonsense\"", fairway.Engine, listen="nonsense")
        with fairway.Engine(max_regions=2) as small:
            regions = []
            with self.assertRaisesRegex(fairway.ResourceExhausted, "raise option 'max_regions'"):
                while len(regions) < 3:
                    regions.append(small.register(bytearray(64), "r"))
        for said, shown in (
            ("give EngineOptions::directory", "give option 'directory'"), ("see EngineOptions::rdma.devices", "see option 'rdma.devices'"),
            ("without Access::write it", "without 'w' it"), ("StreamPut::by says", "'by' says"), ("an address a::b", "an address a::b"),
        ):
            error = fairway.errors._make("unsupported", said, "", "", "unknown", f"unsupported: {said}")
            self.assertEqual((str(error), error.cause), (f"unsupported: {shown}", shown))

    def test_words_that_are_not_eight_bytes(self):
        remote = self.offer(np.zeros(8, np.uint64), "rwa")
        for target in (remote, remote[0:4], remote[0:16], remote.array((4,), "uint16", strides=(16,))):
            self.refuses(fairway.InvalidArgument, "8 bytes in a row", self.alice.fetch_add, target, 1)
            self.refuses(fairway.InvalidArgument, "8 bytes in a row", fairway.signal, target)
        self.refuses(fairway.InvalidArgument, "multiple of 8", self.alice.fetch_add, remote[4:12], 1)

    def test_more_memory_than_there_is(self):
        """A file size limit stands behind it: without the refusal the kernel would kill a process."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, before[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        self.refuses(fairway.ResourceExhausted, "32 TiB: .* leaves", self.alice.allocate, 1 << 45)

    def test_shapes_that_make_no_sense(self):
        remote = self.offer(np.zeros(64, np.uint8), "rw")
        for shape, strides in (((1 << 40, 1 << 40), (1 << 40, 1 << 40)), ((1 << 62, 1 << 62), (0, 0)), ((3,), ((1 << 63) - 1,)), ((1 << 62, 4), None)):
            self.refuses(fairway.OutOfRange, "further than any region", remote.array, shape, "uint8", 0, strides)
        self.refuses(fairway.InvalidArgument, "different lengths", remote.array, (4,), "uint8", 0, (1, 2))
        self.refuses(fairway.InvalidArgument, "shape cannot be", remote.array, "abc")
        self.refuses(fairway.InvalidArgument, "negative", remote.array, -1)
        self.assertEqual(remote.array(16, "float32").shape, (16,))
        for index in (1.5, None, "a", [1, 2]):
            self.refuses(fairway.InvalidArgument, "an index is", remote.array((8, 8)).__getitem__, index)

    def test_protocols_that_lie(self):
        class Shown:
            def __init__(self, said):
                self.__cuda_array_interface__ = said

        good = {"shape": (4, 4), "typestr": "<f4", "data": (64, False), "version": 3}
        for change, words in (
            ({"typestr": "f"}, "typestr"), ({"typestr": "<fx"}, "typestr"), ({"typestr": "<f" + "9" * 30}, "typestr"), ({"typestr": 4}, "typestr"),
            ({"data": 64}, "data"), ({"shape": 4}, "shape"), ({"shape": (-4, 4)}, "no sense"), ({"shape": (1 << 62, 1 << 62)}, "no sense"),
            ({"strides": (4,)}, "no sense"),
        ):
            with self.subTest(change=change):
                self.refuses(fairway.InvalidArgument, words, self.alice.register, Shown(good | change), "r")
        for said in (3, {}, {"data": (64, False)}):
            self.refuses(fairway.InvalidArgument, "has no '", self.alice.register, Shown(said), "r")

        class Tensor:
            device = (1, 0)

            def __dlpack_device__(self):
                return self.device

            def __dlpack__(self):
                return 5

        self.refuses(fairway.InvalidArgument, "no tensor", self.alice.register, Tensor(), "r")
        Tensor.device = 1
        self.refuses(fairway.InvalidArgument, "__dlpack_device__ cannot be 1", self.alice.register, Tensor(), "r")

    def test_memory_that_its_owner_does_not_lend(self):
        released = memoryview(bytearray(8))
        released.release()
        closed = mmap.mmap(-1, 4096)
        closed.close()
        for memory in (np.zeros(8, "M8[s]"), released, closed):
            with self.assertRaisesRegex(fairway.InvalidArgument, f"{type(memory).__name__} does not lend its memory: .") as caught:
                self.alice.register(memory, "r")
            self.assertIsInstance(caught.exception.__cause__, ValueError)

        class Interrupted:
            def __dlpack_device__(self):
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.alice.register(Interrupted(), "r")

    def test_parts_that_are_no_slices(self):
        region = self.bob.register(bytearray(64), "rw")
        remote = self.offer(bytearray(64), "rw")
        for memory in (region, remote):
            for part in (3, "a", None):
                self.refuses(fairway.InvalidArgument, r"slices of bytes, as in region\[0:8\], not", memory.__getitem__, part)
            self.refuses(fairway.InvalidArgument, "slices", list, memory)

    def test_extents_on_strided_views(self):
        remote = self.offer(np.zeros((8, 8), np.uint8), "rw").array((8, 8))
        table = np.array([[0, 0, 0, 0, 32]])
        for here, there in ((np.zeros((8, 8), np.uint8)[:, ::2], remote), (np.zeros(64, np.uint8), remote[:, ::2])):
            self.refuses(fairway.InvalidArgument, "strided view", fairway.Request.extents, "write", [here], [there], table)

    def test_a_closed_engines_peers(self):
        self.alice.close()
        for call in (lambda: self.peer.lookup("x"), lambda: self.peer.import_region(b"x"), self.peer.explain, self.peer.disconnect):
            self.refuses(fairway.Closed, "the engine is closed", call)

    def test_the_other_byte_order(self):
        remote = self.offer(np.zeros((4, 64), np.float32), "rw")
        foreign = np.zeros((4, 64), np.dtype(np.float32).newbyteorder("S"))
        self.refuses(fairway.InvalidArgument, "converts nothing", self.alice.write, foreign, remote.array((4, 64), "float32"))
        self.refuses(fairway.InvalidArgument, "byte order", remote.array, (4, 64), foreign.dtype)
        index = np.arange(4).astype(np.dtype(np.int64).newbyteorder("S"))
        self.refuses(fairway.InvalidArgument, "byte order", self.alice.write_pages, np.zeros((4, 64), np.float32), remote, index, [0, 1, 2, 3], 256)
        self.alice.write(foreign, remote).wait()  # as bytes

    def test_page_numbers_that_are_none(self):
        pages = np.zeros((4, 64), np.uint8)
        remote = self.offer(np.zeros((4, 64), np.uint8), "w")
        for index, words in ((None, "list of page numbers, not None"), (3, "not int"), ([0.5], "0.5"), ("ab", "'a'"), ([[0]], r"\[0\]")):
            self.refuses(fairway.InvalidArgument, words, self.alice.write_pages, pages, remote, index, [0], 64)
        self.refuses(fairway.OutOfRange, "ends beyond", self.alice.write_pages, pages, remote, [1 << 70], [0], 64)
        self.refuses(fairway.OutOfRange, "negative", self.alice.write_pages, pages, remote, [-(1 << 70)], [0], 64)

    def test_regions_of_another_engine(self):
        region = self.bob.register(bytearray(64), "r")
        self.alice.register(bytearray(64), "r")
        for call in (lambda: self.alice.publish("bob's", region), lambda: self.alice.describe(region)):
            self.refuses(fairway.InvalidArgument, "another engine", call)
        remote = self.offer(bytearray(8), "w")
        moved = self.alice.write(bytes(8), remote)
        moved.wait()
        for what in (moved, self.peer, fairway.Request.write(bytes(8), remote)):
            self.refuses(fairway.InvalidArgument, "another engine's", self.bob.explain, what)

    def test_a_batch_of_which_nothing_was_taken(self):
        remote = self.offer(bytearray(64), "rw")
        with self.assertRaises(fairway.AccessDenied) as caught:
            self.alice.submit([fairway.Request.fetch_add(remote[0:8], 1)] * 2)
        self.refuses(fairway.InvalidArgument, "none of", caught.exception.transfer.explain)
        self.refuses(fairway.InvalidArgument, "none of", self.alice.explain, caught.exception.transfer)

    def test_a_batch_says_which_request_was_wrong(self):
        remote = self.offer(bytearray(64), "rw")
        good = fairway.Request.write(b"12345678", remote[0:8])
        bad = fairway.Request.fetch_add(remote[0:8], 1)  # atomics are not granted
        with self.assertRaises(fairway.AccessDenied) as caught:
            self.alice.submit([good, bad, good])
        self.assertEqual(caught.exception.index, 1)
        self.assertEqual(caught.exception.transfer.wait(), 8)


if __name__ == "__main__":
    unittest.main()
