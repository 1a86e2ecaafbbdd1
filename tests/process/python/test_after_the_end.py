"""What is said of transfers that have ended, and by an engine that is closed."""

import unittest

import fairway

from support import Pair


class AfterTheEnd(Pair):
    def test_each_cancel_of_a_receive_to_which_nothing_came_says_nothing(self):
        receive = self.peer.receive(1, bytearray(8))
        self.assertEqual([receive.cancel().far_side for _ in range(3)], ["nothing"] * 3)
        self.assertRaises(fairway.Cancelled, receive.wait, 60)
        self.assertEqual(receive.cancel().far_side, "nothing")
        waits = self.peer.receive(2, bytearray(8))
        self.alice.close()
        self.assertEqual(waits.cancel().far_side, "nothing")

    def test_cancel_of_a_write_that_was_faster_says_all(self):
        remote = self.offer(bytearray(1 << 20), "w")
        write = self.alice.write(bytes(1 << 20), remote)
        self.alice.flush(self.peer, 60)  # it has ended, and nobody has asked for it
        self.assertEqual([write.cancel().far_side for _ in range(2)], ["all"] * 2)
        self.assertEqual(write.wait(60), 1 << 20)
        self.assertEqual(write.cancel().far_side, "all")

    def test_of_several_that_end_differently_it_is_partial(self):
        late = fairway.Request.write(bytes(8), self.offer(bytearray(64), "w")[:8], deadline=0)
        good = fairway.Request.write(bytes(8), self.offer(bytearray(64), "w")[:8])
        for requests, far_side in (([good, late], "partial"), ([late, late], "nothing"), ([good, good], "all")):
            several = self.alice.submit(requests)
            self.alice.flush(self.peer, 60)
            self.assertEqual(several.cancel().far_side, far_side)
            while not several.done:
                pass
            self.assertEqual(several.cancel().far_side, far_side)

    def test_cancel_of_one_that_a_queue_gives(self):
        queue = self.alice.make_queue(4)
        receive = self.peer.receive(1, bytearray(8), queue=queue)
        self.assertEqual([receive.cancel().far_side for _ in range(2)], ["nothing"] * 2)
        self.assertEqual(queue.wait(60), receive)
        self.assertEqual(receive.cancel().far_side, "nothing")

    def test_all_that_is_late_tells_what_has_failed(self):
        ended, also, waits = (self.peer.receive(tag, bytearray(8)) for tag in range(3))
        ended.cancel()
        also.cancel()
        with self.assertRaises(fairway.TimedOut) as caught:
            self.alice.wait_all([ended, waits, also], 0.02)
        self.assertEqual((caught.exception.index, [index for index, _ in caught.exception.failures]), (1, [0, 2]))
        self.assertIsInstance(caught.exception.failures[0][1], fairway.Cancelled)
        with self.assertRaises(fairway.TimedOut) as caught:
            self.alice.wait_all([waits], 0)
        self.assertEqual((caught.exception.index, caught.exception.failures), (0, []))

    def test_a_closed_engine_says_so(self):
        engine = self.alice
        space = engine.make_counters(2)
        engine.close()
        for call in (
            lambda: engine.make_queue(4), lambda: engine.make_counters(4), lambda: engine.writable,
            engine.poll_notifications, engine.poll_peer_events, space.poll_notifications,
            lambda: engine.wait_notification(0), lambda: space.wait_notification(0), lambda: engine.wait_peer_event(0),
        ):
            self.assertRaisesRegex(fairway.Closed, "the engine is closed", call)

    def test_too_many_queues_are_refused_in_pythons_words(self):
        queues = []
        with self.assertRaisesRegex(fairway.ResourceExhausted, "at most 64 completion queues: end one$"):
            while len(queues) < 65:
                queues.append(self.alice.make_queue(1))
        with self.assertRaisesRegex(fairway.ResourceExhausted, "at most 64 counter spaces: release one$"):
            while len(queues) < 130:
                queues.append(self.alice.make_counters(1))


if __name__ == "__main__":
    unittest.main()
