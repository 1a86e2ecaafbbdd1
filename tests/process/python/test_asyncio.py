"""Engines under asyncio: awaited transfers, iterated notifications, a loop that stays free."""

import asyncio
import time
import unittest

import fairway
import numpy as np

from support import Pair


class Asyncio(Pair):
    def run_async(self, coroutine):
        return asyncio.run(asyncio.wait_for(coroutine, 120))

    def test_await_a_transfer(self):
        remote = self.offer(np.zeros(1 << 20, np.uint8), "rw")

        async def main():
            transfers = [self.alice.write(np.full(4096, i, np.uint8), remote[i * 4096 : i * 4096 + 4096]) for i in range(100)]
            self.assertTrue(all(transfer.polled for transfer in transfers))
            self.assertEqual(await asyncio.gather(*map(wait, transfers)), [4096] * 100)

        async def wait(transfer):
            return await transfer

        self.run_async(main())
        early = self.alice.write(b"z" * 8, remote[0:8])  # started before there is a loop

        async def late():
            return await early

        self.assertEqual(self.run_async(late()), 8)

    def test_errors_come_out_of_await(self):
        remote = self.offer(bytearray(8), "w")
        self.regions[0].deregister()

        async def main():
            with self.assertRaises(fairway.Revoked):
                await self.alice.write(b"x" * 8, remote)

        self.run_async(main())

    def test_notifications_are_iterated(self):
        remote = self.offer(bytearray(8), "w")

        async def main():
            async def read():
                seen = []
                async for note in self.bob.notifications():
                    seen.append(note.immediate)
                    if len(seen) == 500:
                        return seen

            reader = asyncio.create_task(read())
            for number in range(500):
                await self.alice.write(b"12345678", remote, notify=number)
            return await reader

        self.assertEqual(sorted(self.run_async(main())), list(range(500)))

    def test_a_task_that_waits_leaves_the_loop_free(self):
        async def main():
            waits = asyncio.create_task(self.wait_one())
            for _ in range(50):
                await asyncio.sleep(0.001)
            waits.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waits

        self.run_async(main())

    async def wait_one(self):
        async for note in self.bob.notifications():
            return note

    def test_unread_notifications_do_not_burn_the_processor(self):
        remote = self.offer(bytearray(8), "w")
        back = self.bob.connect(self.alice.address)

        async def main():
            for number in range(10):
                await self.alice.write(b"12345678", remote, notify=number)  # nobody reads them at bob's
            receive = back.receive(1, bytearray(8))
            before = time.process_time()
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(wait(receive), 0.5)
            return time.process_time() - before

        async def wait(transfer):
            return await transfer

        self.assertLess(self.run_async(main()), 0.3)

    def test_iteration_ends_with_the_engine(self):
        async def main():
            async def read():
                return [note async for note in self.bob.notifications()]

            reader = asyncio.create_task(read())
            await asyncio.sleep(0.05)
            self.bob.close()
            return await reader

        self.assertEqual(self.run_async(main()), [])

    def test_peer_events_are_iterated(self):
        async def main():
            kinds = []
            async for event in self.bob.peer_events():
                kinds.append(event.kind)
                if event.kind == "link_up":
                    self.alice.close()
                if event.kind == "down":
                    return kinds

        self.assertEqual(self.run_async(main())[0], "up")


if __name__ == "__main__":
    unittest.main()
