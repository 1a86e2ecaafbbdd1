"""Messages: receives of any peer, and those of several arrays."""

import asyncio
import gc
import threading
import unittest

import fairway
import numpy as np

from support import Pair


class Messages(Pair):
    def setUp(self):
        super().setUp()
        self.back = self.bob.connect(self.alice.address)
        self.carol = fairway.Engine(name="carol")
        self.addCleanup(self.carol.close)
        self.to_alice = self.carol.connect(self.alice.address)

    def peers_of_alice(self):
        """bob's and carol's Peer, as alice has them."""
        return self.peer, self.alice.connect(self.carol.address)

    def test_a_receive_of_any_peer_says_whose_message_it_got(self):
        bob, carol = self.peers_of_alice()
        for sender, peer in ((self.to_alice, carol), (self.back, bob), (self.to_alice, carol)):
            into = bytearray(8)
            receive = self.alice.receive(7, into)
            self.assertIsNone(receive.peer)
            sender.send(7, peer.name[:5].encode()).wait(60)
            self.assertEqual(receive.wait(60), 5)
            self.assertEqual((receive.peer, receive.peer.id), (peer, peer.id))
            self.assertEqual(into[:5].decode(), peer.name[:5])
            self.assertEqual(receive.peer.send(8, b"back").peer, None)

    def test_each_message_goes_to_one_receive_and_the_sender_to_its_answer(self):
        """Both send beside each other; every message arrives once, with its sender."""
        bob, carol = self.peers_of_alice()
        count = 50
        buffers = [bytearray(4096) for _ in range(2 * count)]
        receives = [self.alice.receive(1, each) for each in buffers]

        def send(peer, mark):
            for number in range(count):
                peer.send(1, bytes([mark, number]) * (1 + number * 40)).wait(60)

        threads = [threading.Thread(target=send, args=each) for each in ((self.back, 1), (self.to_alice, 2))]
        for thread in threads:
            thread.start()
        sizes = self.alice.wait_all(receives, 60)
        for thread in threads:
            thread.join()
        got = {bob: [], carol: []}
        for receive, size, buffer in zip(receives, sizes, buffers):
            mark, number = buffer[0], buffer[1]
            self.assertEqual(buffer[:size], bytes([mark, number]) * (1 + number * 40))
            self.assertEqual(receive.peer, (bob, carol)[mark - 1])
            got[receive.peer].append(number)
        self.assertEqual(got, {bob: list(range(count)), carol: list(range(count))})  # each in its order

    def test_it_keeps_its_place_among_the_receives_of_a_peer(self):
        first, second, third = bytearray(8), bytearray(8), bytearray(8)
        named, any_, behind = self.peer.receive(3, first), self.alice.receive(3, second), self.alice.receive(3, third, self.peer)
        self.to_alice.send(3, b"carol").wait(60)
        self.assertEqual(any_.wait(60), 5)
        for text in (b"one", b"two"):
            self.back.send(3, text).wait(60)
        self.assertEqual((named.wait(60), behind.wait(60)), (3, 3))
        self.assertEqual((first[:3], second[:5], third[:3]), (b"one", b"carol", b"two"))
        self.assertEqual((named.peer, behind.peer), (self.peer, self.peer))

    def test_the_peer_is_there_however_the_end_is_told(self):
        def sent():
            self.back.send(5, b"x").wait(60)

        told = []
        queue = self.alice.make_queue(4)
        self.alice.receive(5, bytearray(8), callback=lambda done: told.append(done.peer))
        sent()
        while not told:
            self.alice.poll()
        self.alice.receive(5, bytearray(8), queue=queue)
        sent()
        told.append(queue.wait(60).peer)
        abandoned = self.alice.receive(5, bytearray(8))
        sent()
        told.append(self.alice.wait_any([abandoned], 60).peer)

        async def main():
            receive = self.alice.receive(5, bytearray(8))
            sent()
            self.assertEqual(await receive, 1)
            return receive.peer

        told.append(asyncio.run(main()))
        self.assertEqual(told, [self.peer] * 4)

    def test_one_that_ends_without_a_message_is_of_nobody(self):
        late, ended, left = self.alice.receive(1, bytearray(8), deadline=0.01), self.alice.receive(1, bytearray(8)), self.alice.receive(1, bytearray(8))
        self.assertRaises(fairway.DeadlineExceeded, late.wait, 60)
        self.assertTrue(ended.cancel().fenced)
        self.assertRaises(fairway.Cancelled, ended.wait, 60)
        self.carol.close()  # others may still send
        named = self.peer.receive(2, bytearray(8))
        self.back.send(2, b"x").wait(60)
        self.assertEqual(named.wait(60), 1)
        self.assertFalse(left.done)
        self.alice.close()
        self.assertRaises(fairway.Error, left.result)
        self.assertEqual([late.peer, ended.peer, left.peer], [None] * 3)

    def test_a_message_of_several_arrays_is_their_bytes_in_order(self):
        region = self.bob.register(bytearray(b"<region>"))
        for size in (10, 100_000):  # copied, and written into memory of the engine's
            parts = [np.full(size, 1, np.uint8), region, (np.arange(size) % 251).astype(np.uint8), region[1:7], b"tail"]
            whole = b"".join([parts[0].tobytes(), b"<region>", parts[2].tobytes(), b"region", b"tail"])
            with self.subTest(size=size):
                into = [bytearray(size + 3), np.zeros((2, 4), np.uint8), bytearray(len(whole) - size - 11)]
                for given, taken in ((parts, into), (tuple(parts), [bytearray(len(whole))]), ([whole], into), (parts, bytearray(len(whole)))):
                    receive = self.peer.receive(9, taken)
                    sent = self.back.send(9, given)
                    self.assertEqual((sent.wait(60), receive.wait(60)), (len(whole), len(whole)))
                    self.assertEqual(b"".join(bytes(each) for each in (taken if isinstance(taken, list) else [taken])), whole)
                    self.assertEqual(receive.peer, self.peer)

    def test_a_list_may_change_once_it_was_given(self):
        into = [bytearray(8), bytearray(8)]
        kept = list(into)
        receive = self.peer.receive(1, into)
        into.clear()
        gc.collect()
        parts = [b"12345678", bytearray(b"abc")]
        sent = self.back.send(1, parts)
        parts[0] = None
        self.assertEqual((receive.wait(60), sent.wait(60)), (11, 11))
        self.assertEqual(b"".join(kept)[:11], b"12345678abc")

    def test_wrong_arguments_are_named(self):
        gate = self.peer.receive(1, bytearray(8))
        one = bytearray(8)
        for words, call in (
            ("peer is a Peer, from Engine.connect, not int", lambda: self.alice.receive(1, one, 5)),
            ("peer is another engine's", lambda: self.alice.receive(1, one, self.back)),
            ("tag is a whole number from 0 to", lambda: self.alice.receive(-1, one)),
            ("takes no `after`", lambda: self.alice.receive(1, one, after=gate)),
            ("takes one array", lambda: self.alice.receive(1, [one, bytearray(8)])),
            ("list of 0 arrays: a message has 1 to 1,024", lambda: self.back.send(1, [])),
            ("list of 1025 arrays: a message has 1 to 1,024", lambda: self.back.send(1, [b"x"] * 1025)),
            ("int shows no memory", lambda: self.back.send(1, [b"x", 5])),
            ("list shows no memory", lambda: self.back.send(1, [[b"x"], [b"y"]])),
            ("strided view: give a list of its contiguous parts", lambda: self.back.send(1, [b"x", np.zeros((4, 4))[:, 1]])),
            ("at most 64 MiB", lambda: self.peer.receive(1, [np.zeros(33 << 20, np.uint8), np.zeros(33 << 20, np.uint8)])),
            ("another engine", lambda: self.back.send(1, [b"x", self.alice.register(bytearray(8))])),
        ):
            with self.subTest(words=words):
                with self.assertRaisesRegex(fairway.InvalidArgument, words):
                    call()
        self.assertRaisesRegex(fairway.AccessDenied, "read-only", self.peer.receive, 1, [one, b"fixed"])
        self.assertEqual(self.alice.receive(2, [bytearray(8)]).cancel().fenced, True)  # one of one is one

    def test_more_receives_of_any_peer_than_may_wait(self):
        waiting = [self.alice.receive(1, bytearray(8)) for _ in range(1024)]
        with self.assertRaisesRegex(fairway.QueueFull, "1,024"):
            self.alice.receive(1, bytearray(8))
        self.back.send(1, b"x").wait(60)
        self.assertIs(self.alice.wait_any(waiting, 60), waiting[0])
        self.assertTrue(self.alice.receive(1, bytearray(8)).cancel().fenced)


if __name__ == "__main__":
    unittest.main()
