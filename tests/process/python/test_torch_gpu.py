"""torch's CUDA tensors between two processes, on the real driver; skipped without torch or a GPU."""

import asyncio
import gc
import subprocess
import sys
import textwrap
import unittest

import fairway

try:
    import torch
except ImportError:
    torch = None
try:
    import uvloop
except ImportError:
    uvloop = None

ROWS, COLUMNS = 256, 1024

OWNER = """
import sys, torch, fairway
memory = torch.zeros(256, 1024, device="cuda")
engine = fairway.Engine(name="owner", transports=["shm", "cuda", "tcp"])
region = engine.register(memory, "rwa")
engine.publish("memory", region)
print(engine.address, flush=True)
for line in sys.stdin:
    torch.cuda.synchronize()
    print(memory[:, int(line.split()[0]) : int(line.split()[1])].double().sum().item(), flush=True)
"""


@unittest.skipIf(torch is None or not torch.cuda.is_available(), "torch has no GPU here")
class CudaTensors(unittest.TestCase):
    def setUp(self):
        self.owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(OWNER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        self.engine = fairway.Engine(name="holder", transports=["shm", "cuda", "tcp"])
        self.addCleanup(self.engine.close)
        peer = self.engine.connect(self.owner.stdout.readline().strip(), timeout=60)
        self.remote = peer.lookup("memory", timeout=60)
        self.matrix = self.remote.array((ROWS, COLUMNS), torch.float32)
        self.source = torch.arange(ROWS * COLUMNS, dtype=torch.float32, device="cuda").reshape(ROWS, COLUMNS)

    def end(self):
        self.owner.stdin.close()
        self.owner.wait(60)
        self.owner.stdout.close()

    def sum_there(self, first=0, last=COLUMNS):
        self.owner.stdin.write(f"{first} {last}\n")
        self.owner.stdin.flush()
        return float(self.owner.stdout.readline())

    def test_tensors_and_their_views_move(self):
        self.assertEqual(self.remote.kind, "device")
        self.engine.write(self.source, self.matrix).wait(60)
        self.assertEqual(self.sum_there(), self.source.double().sum().item())
        self.engine.write(torch.zeros_like(self.source)[:, 8:512], self.matrix[:, 8:512]).wait(60)
        self.assertEqual(self.sum_there(8, 512), 0)
        self.assertEqual(self.sum_there(512), self.source[:, 512:].double().sum().item())
        back = torch.empty(ROWS, 128, device="cuda")
        self.engine.read(back, self.matrix[:, 512:640]).wait(60)
        self.assertTrue(torch.equal(back, self.source[:, 512:640]))

    def test_host_and_pinned_tensors_meet_gpu_memory(self):
        for source in (self.source.cpu(), self.source.cpu().pin_memory()):
            self.engine.write(source, self.matrix).wait(60)
            self.assertEqual(self.sum_there(), source.double().sum().item())
            back = torch.empty_like(source)
            self.engine.read(back, self.matrix).wait(60)
            self.assertTrue(torch.equal(back, source))

    def test_half_types_keep_their_bits(self):
        half = torch.randn(ROWS, COLUMNS, device="cuda", dtype=torch.bfloat16)
        there = self.remote.array((ROWS, COLUMNS), torch.bfloat16)
        self.engine.write(half, there).wait(60)
        back = torch.empty_like(half)
        self.engine.read(back, there).wait(60)
        self.assertTrue(torch.equal(back, half))

    def test_a_transfer_starts_after_what_the_stream_computes(self):
        """The product before takes far longer than the copy; the write is asked for at once."""
        stream = torch.cuda.Stream()
        made = torch.zeros_like(self.source)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            big = torch.ones(8192, 8192, device="cuda")
            for _ in range(4):
                big = big @ big
                big /= big.mean()
            made.copy_(self.source * big[0, 0])
        transfer = self.engine.write(made, self.matrix, stream=stream)
        transfer.stream_wait(stream)
        with torch.cuda.stream(stream):
            made.zero_()  # behind the transfer: it must not be what arrives
        self.assertEqual(transfer.wait(60), made.nbytes)
        stream.synchronize()
        self.assertEqual(self.sum_there(), self.source.double().sum().item())
        self.assertEqual(made.sum().item(), 0)

    def test_the_registration_ends_with_the_tensor(self):
        before = self.engine.metrics()["regions"]
        tensor = torch.ones(1024, 1024, device="cuda")
        self.engine.write(tensor[0], self.matrix[0]).wait(60)
        self.assertGreater(self.engine.metrics()["regions"], before)
        del tensor
        gc.collect()
        self.assertEqual(self.engine.metrics()["regions"], before)

    def test_nothing_beyond_the_tensor_is_reached(self):
        """What lies beside the tensor in the allocator's block is nobody's: the region is the tensor's storage alone."""
        outside = self.remote.nbytes
        with self.assertRaises(fairway.Error):
            self.engine.write(torch.ones(4, device="cuda"), self.remote[outside : outside + 16])
        self.assertEqual(self.sum_there(), 0)

    def test_a_registered_tensor_is_device_memory(self):
        region = self.engine.register(self.source, "rw")
        self.assertEqual((region.kind, region.nbytes), ("device", self.source.nbytes))
        region.deregister(60)

    @unittest.skipIf(uvloop is None, "uvloop is not installed (python3-uvloop)")
    def test_awaited_under_uvloop(self):
        async def main():
            return await asyncio.wait_for(asyncio.gather(*(self.engine.write(self.source[row], self.matrix[row]) for row in range(16))), 60)

        loop = uvloop.new_event_loop()
        self.addCleanup(loop.close)
        self.assertEqual(loop.run_until_complete(main()), [COLUMNS * 4] * 16)
        self.assertEqual(self.sum_there(), self.source[:16].double().sum().item())


if __name__ == "__main__":
    unittest.main()
