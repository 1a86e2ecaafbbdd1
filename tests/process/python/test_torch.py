"""torch's tensors and uvloop, where they are installed."""

import asyncio
import gc
import unittest

import fairway

from support import Pair

try:
    import torch
except ImportError:
    torch = None
try:
    import uvloop
except ImportError:
    uvloop = None


@unittest.skipIf(torch is None, "torch is not installed (python3-torch)")
class Tensors(Pair):
    def setUp(self):
        super().setUp()
        self.target = torch.zeros(64, 64)
        self.remote = self.offer(self.target, "rw")
        self.source = torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64)

    def test_tensors_and_their_views_move(self):
        self.alice.write(self.source, self.remote).wait()
        self.assertTrue(torch.equal(self.target, self.source))
        view = self.remote.array((64, 64), torch.float32)
        self.target.zero_()
        self.alice.write(self.source[:, 8:16], view[:, 8:16]).wait()
        self.assertTrue(torch.equal(self.target[:, 8:16], self.source[:, 8:16]))
        self.assertEqual(self.target.sum(), self.source[:, 8:16].sum())

    def test_one_registration_for_all_views(self):
        before = self.alice.metrics()["regions"]
        for row in range(64):
            self.alice.write(self.source[row], self.remote[row * 256 : row * 256 + 256]).wait()
        self.assertEqual(self.alice.metrics()["regions"], before + 1)
        self.source = None
        gc.collect()
        self.assertEqual(self.alice.metrics()["regions"], before)

    def test_what_torch_has_and_numpy_has_not(self):
        half = torch.ones(64, 64, dtype=torch.bfloat16)
        self.alice.write(half, self.remote.array((64, 64), torch.bfloat16)).wait()
        with self.assertRaises(fairway.InvalidArgument):
            self.alice.write(half, self.remote.array((64, 64), "float16"))
        with self.assertRaisesRegex(fairway.InvalidArgument, "Tensor does not lend its memory: .*detach"):
            self.alice.write(torch.ones(4, requires_grad=True), self.remote[0:16])
        with self.assertRaisesRegex(fairway.InvalidArgument, "resolve_neg"):  # its bytes are still those of +1
            self.alice.write(torch.full((4,), 1 + 1j).conj().imag, self.remote[0:16])

    def test_page_numbers_are_tensors_too(self):
        rows = torch.arange(64).flip(0)
        for index in (rows, rows.int(), torch.stack([rows, rows], 1)[:, 0]):
            self.target.zero_()
            self.alice.write_pages(self.source, self.remote, index, torch.arange(64), 256).wait()
            self.assertTrue(torch.equal(self.target, self.source[rows]))

    def test_regions_are_tensors(self):
        region = self.alice.allocate(4096)
        tensor = torch.from_dlpack(region)
        tensor[:] = 7
        self.assertEqual(bytes(memoryview(region)[:2]), b"\7\7")


@unittest.skipIf(uvloop is None, "uvloop is not installed (python3-uvloop)")
class Uvloop(Pair):
    def test_await_and_iterate(self):
        remote = self.offer(bytearray(8), "w")

        async def main():
            async def read():
                async for note in self.bob.notifications():
                    return note.immediate

            reader = asyncio.create_task(read())
            self.assertEqual(await self.alice.write(b"12345678", remote, notify=5), 8)
            return await asyncio.wait_for(reader, 60)

        loop = uvloop.new_event_loop()
        self.addCleanup(loop.close)
        self.assertEqual(loop.run_until_complete(main()), 5)


if __name__ == "__main__":
    unittest.main()
