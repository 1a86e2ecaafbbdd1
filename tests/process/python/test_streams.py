"""GPU memory, streams and mappings in Python, on a driver that stands in for CUDA's where the build has one."""

import ctypes
import os
import struct
import subprocess
import sys
import textwrap
import threading
import time
import types
import unittest
import warnings
from unittest import mock

import fairway
import numpy
from standin_gpu import Gpu
from support import Pair

BYTES = 1 << 20
TRANSPORTS = ["shm", "cuda", "tcp"]

OWNER = """
import gc, numpy, sys, warnings, weakref, fairway
from standin_gpu import Gpu
gpu = Gpu(1)
memory = gpu.allocate(1 << 20)
engine = fairway.Engine(name="owner", transports=["shm", "cuda", "tcp"], peer_timeout=10.0)
region = engine.register(memory, "rwa")
engine.publish("memory", region)
print(engine.address, flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "read":
        print(gpu.read(gpu.part(memory, int(words[1]), int(words[2]))).hex(), flush=True)
    elif words[0] == "deregister":
        try:
            region.deregister(0.05)
            print("ok", flush=True)
        except fairway.Error as error:
            print(error.code, flush=True)
    elif words[0] == "close":
        by_itself = numpy.zeros(64, numpy.uint8)  # a call registers it
        engine.wait_peer_event(60).peer.receive(1, by_itself)
        kept = weakref.ref(memory), weakref.ref(by_itself)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            engine.close()
        del region, memory, by_itself
        gc.collect()
        print(*("freed" if each() is None else "kept" for each in kept), *(each.message for each in said), flush=True)
"""


@unittest.skipUnless(os.environ.get("FAIRWAY_CUDA_DRIVER"), "FAIRWAY_CUDA_DRIVER names no driver that stands in for CUDA's")
class Streams(unittest.TestCase):
    def setUp(self):
        self.owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(OWNER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        self.gpu = Gpu(0)
        self.engine = fairway.Engine(name="holder", transports=TRANSPORTS, peer_timeout=10.0)
        self.addCleanup(self.engine.close)
        self.peer = self.engine.connect(self.owner.stdout.readline().strip())
        self.remote = self.peer.lookup("memory")
        self.source = self.gpu.allocate(BYTES, bytes(range(256)) * (BYTES // 256))
        self.stream = self.gpu.stream()

    def end(self):
        self.owner.stdin.close()
        self.owner.wait(60)
        self.owner.stdout.close()

    def ask(self, words):
        self.owner.stdin.write(words + "\n")
        self.owner.stdin.flush()
        return self.owner.stdout.readline().strip()

    def part(self, nbytes):
        return self.gpu.part(self.source, 0, nbytes)

    def test_gpu_memory_moves_by_itself(self):
        self.assertEqual(self.remote.kind, "device")
        self.engine.write(self.source, self.remote).wait(60)
        self.assertEqual(self.ask("read 0 512"), (bytes(range(256)) * 2).hex())
        back = self.gpu.allocate(4096)
        self.engine.read(back, self.remote[256 : 256 + 4096]).wait(60)
        self.assertEqual(self.gpu.read(back)[:256], bytes(range(256)))

    def test_an_array_of_a_gpu_is_a_message_by_itself(self):
        for call in (self.peer.send, self.peer.receive):
            with self.assertRaisesRegex(fairway.Unsupported, "a GPU's by itself"):
                call(1, [bytearray(8), self.part(64)])
            self.assertTrue(call(1, [self.part(64)]).cancel().fenced)

    def test_a_message_of_a_gpus_array_waits_for_what_torchs_stream_has_ahead(self):
        waited = []
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(
            is_available=lambda: True, current_stream=lambda gpu: types.SimpleNamespace(synchronize=lambda: waited.append(gpu))))
        with mock.patch.dict(sys.modules, torch=torch), mock.patch("fairway.cuda._has_gpus", False):
            for call in (self.peer.send, self.peer.receive):
                self.assertTrue(call(1, self.part(64)).cancel().fenced)
            self.assertTrue(self.peer.send(1, bytes(8)).cancel().fenced)
        self.assertEqual(len(waited), 2)
        with self.assertRaisesRegex(fairway.InvalidArgument, "stream is an option of write and read: synchronize"):
            self.peer.send(1, self.part(64), stream=self.stream)

    def test_memory_that_dlpack_does_not_lend_now_is_taken_by_the_older_interface(self):
        """As torch's tensors of a GPU that is not the current one."""

        class Elsewhere:
            def __dlpack_device__(self):
                return (2, 1)

            def __dlpack__(self, stream=None):
                raise BufferError("Can't export tensors on a different CUDA device index")

        tensor = Elsewhere()
        with self.assertRaisesRegex(fairway.InvalidArgument, "different CUDA device"):
            self.engine.write(tensor, self.remote)
        tensor.__cuda_array_interface__ = self.source.__cuda_array_interface__
        self.engine.write(tensor, self.remote).wait(60)
        self.assertEqual(self.ask("read 0 256"), bytes(range(256)).hex())

    def test_a_transfer_starts_after_its_stream_and_the_stream_waits_for_it(self):
        """What the stream has to do before is a copy that brings the bytes."""
        late = self.gpu.allocate(4096)
        gate = self.gpu.hold(self.stream)
        self.gpu.copy(self.stream, late, self.source, 4096)
        transfer = self.engine.write(late, self.remote[0:4096], stream=self.stream)
        with self.assertRaises(fairway.TimedOut):
            transfer.wait(0.2)
        gate.value = 1
        self.gpu.synchronize(self.stream)  # behind the transfer
        self.assertEqual(self.ask("read 0 256"), bytes(range(256)).hex())
        self.assertEqual(transfer.wait(60), 4096)

    def test_stream_wait_holds_back_what_comes_later(self):
        other = self.gpu.stream()
        gate = self.gpu.hold(self.stream)
        transfer = self.engine.write(self.part(4096), self.remote[0:4096], stream=self.stream)
        transfer.stream_wait(other)
        copied = self.gpu.allocate(8)
        self.gpu.copy(other, copied, self.gpu.part(self.source, 8, 8), 8)
        time.sleep(0.05)
        self.assertEqual(self.gpu.read(copied), bytes(8))
        gate.value = 1
        self.gpu.synchronize(other)
        self.assertEqual(self.gpu.read(copied), bytes(range(8, 16)))
        transfer.wait(60)
        transfer.stream_wait(other)  # of one that is over: nothing to wait for

    def put_or_skip(self, *given, **options):
        try:
            self.engine.stream_put(*given, **options)
        except fairway.Unsupported as error:
            if "nvcc" in str(error):
                self.skipTest(str(error))
            raise

    def test_a_stream_puts_bytes_and_a_signal_into_a_mapping(self):
        with self.engine.map(self.remote, 0) as mapping:
            self.assertEqual((mapping.nbytes, mapping.gpu, mapping.access, mapping.ended), (BYTES, 0, "rwa", None))
            self.assertEqual(mapping.__cuda_array_interface__["data"][0], mapping.address)
            self.assertIn("for GPU 0", repr(mapping))
            for by in ("copy_engine", "kernel", "automatic"):
                self.put_or_skip(mapping, self.part(4096), self.stream, offset=512, by=by, signal_offset=BYTES - 8)
                self.gpu.synchronize(self.stream)
            self.assertEqual(self.ask("read 512 256"), bytes(range(256)).hex())
            self.assertEqual(self.ask(f"read {BYTES - 8} 8"), struct.pack("<Q", 3).hex())
        with self.assertRaisesRegex(fairway.Revoked, "unmapped"):
            mapping.address
        mapping.unmap()  # again is nothing

    def test_a_stream_waits_for_a_signal_of_its_own_gpu(self):
        other = Gpu(1)
        words = other.allocate(4096)
        region = self.engine.register(words, "rw")
        waits = other.stream()
        outcome = other.part(words, 128, 4, "<u4", 4)
        with self.engine.map(region, 0) as mapping:
            try:
                self.engine.stream_wait_signal(other.part(words, 0, 8, "<u8", 8), waits, outcome, count=other.part(words, 64, 8, "<u8", 8), timeout=60)
            except fairway.Unsupported as error:
                self.skipTest(str(error))
            self.engine.stream_put(mapping, None, self.stream, signal_offset=0)
            other.synchronize(waits)
            self.assertEqual(struct.unpack("<I", other.read(outcome))[0], 0)
            self.engine.stream_wait_signal(other.part(words, 0, 8), waits, outcome, value=99, timeout=0.005, mapping=mapping)
            other.synchronize(waits)
            self.assertNotEqual(struct.unpack("<I", other.read(outcome))[0], 0)

    def test_a_mapping_says_that_its_owner_wants_it_back(self):
        mapping = self.engine.map(self.remote, 0)
        self.assertEqual(self.ask("deregister"), "not_fenced")
        event = self.engine.wait_peer_event(60)
        while event.kind != "mapping_ended":
            event = self.engine.wait_peer_event(60)
        self.assertIsInstance(mapping.ended, fairway.Revoked)
        with self.assertRaises(fairway.Revoked):
            self.engine.stream_put(mapping, self.part(64), self.stream)
        mapping.unmap()
        self.assertEqual(self.ask("deregister"), "ok")

    def test_closing_keeps_memory_that_a_peer_has_not_given_back(self):
        mapping = self.engine.map(self.remote, 0)
        self.addCleanup(mapping.unmap)
        self.assertRegex(self.ask("close"), "^kept kept memory stays allocated for good: a peer may still touch it.*2 regions")

    def test_closing_keeps_no_memory_otherwise(self):
        self.engine.map(self.remote, 0).unmap()
        self.assertEqual(self.ask("close"), "freed freed")

    def test_an_array_is_not_freed_while_the_driver_keeps_its_pages(self):
        """However long that is: past the engine's patience it is said, and waited for."""
        hold = self.gpu.driver.fairway_standin_hold_closings
        freed, keeps = [], [True]

        def let_go(*_):
            keeps[0] = False
            hold(ctypes.c_bool(False))

        self.addCleanup(let_go)
        array = numpy.zeros(BYTES, numpy.uint8)  # a call registers it, and the driver pins it
        self.engine.write(array, self.remote).wait(60)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_: (freed.append(str(message).split(":")[0]), threading.Timer(0.2, let_go).start())
            hold(ctypes.c_bool(True))
            del array
        freed.append("before its pages" if keeps[0] else "after them")
        self.assertEqual(freed, ["an array is not freed until its last user is gone", "after them"])

    def test_what_makes_no_sense_is_refused(self):
        mapping = self.engine.map(self.remote, 0)
        self.addCleanup(mapping.unmap)
        put = self.engine.stream_put
        for kind, words, given, options in (
            (fairway.OutOfRange, "", (mapping, self.part(64), self.stream), {"offset": BYTES - 63}),
            (fairway.InvalidArgument, "by is", (mapping, self.part(64), self.stream), {"by": "magic"}),
            (fairway.InvalidArgument, "", (mapping, self.part(64), self.stream), {"signal_offset": 4}),
            (fairway.Error, "", (mapping, self.part(64), 0), {}),
            (TypeError, "cudaStream_t", (mapping, self.part(64), "a stream"), {}),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(kind, words):
                put(*given, **options)
        with self.assertRaisesRegex(fairway.InvalidArgument, "aligned word"):
            self.engine.stream_wait_signal(self.gpu.part(self.source, 1, 8), self.stream, self.part(4))
        with self.assertRaisesRegex(fairway.InvalidArgument, "whole"):
            self.engine.map(self.remote[0:64], 0)
        with self.assertRaises(fairway.Error):
            self.engine.map(self.remote, 77)


class HostMemory(Pair):
    def test_what_no_kernel_can_reach_is_refused_with_the_reason(self):
        remote = self.offer(bytearray(4096), "w")
        with self.assertRaises(fairway.Error):
            self.alice.map(remote, 0)
        with self.assertRaisesRegex(fairway.InvalidArgument, "another engine"):
            self.bob.map(remote, 0)


if __name__ == "__main__":
    unittest.main()
