"""The connector for vLLM, under a driver that plays vLLM's scheduler and worker in their order of calls, aborts and preemptions
included. Tests name the reports of vLLM's that they hold against."""

import gc
import json
import subprocess
import sys
import textwrap
import time
import unittest

import fairway

from vllm_engine import BLOCKS, ConnectorTest, Engine, kv_blocks


class Connector(ConnectorTest):
    def test_pages_arrive_and_are_given_back(self):
        p, d = self.engine("p"), self.engine("d")
        for number in range(20):
            params = p.prefill(f"r{number}", 70, float(number))
            d.decode(f"r{number}", 70, params)
            self.steps(lambda: f"r{number}" in d.loaded and not p.held, p, d)
            self.assertTrue(d.holds(d.loaded[f"r{number}"], number))
            d.release(f"r{number}")
        self.assert_nothing_left(p, d)

    def test_pages_that_nobody_will_read_are_given_back_at_once(self):
        p, d = self.engine("p"), self.engine("d")
        here = d.request("all of it is in the decoder's own prefix cache", 64, p.prefill("here", 64, 1.0))
        self.assertEqual(d.scheduler.get_num_new_matched_tokens(here, 64), (0, False))
        d.scheduler.update_state_after_alloc(here, kv_blocks(d.free[:4], d.free[:4]), 0)
        aborted = d.request("aborted before it is scheduled", 64, p.prefill("aborted", 64, 2.0))
        self.assertEqual(d.scheduler.request_finished(aborted, []), (False, None))
        gone = d.request("its prefill engine cannot be reached", 64, {**p.prefill("gone", 64, 3.0), "remote_addresses": ["127.0.0.1:1"]})
        self.assertEqual(d.scheduler.request_finished(gone, []), (False, None))
        d.worker.worker.CONNECT_SECONDS = 0.5
        self.steps(lambda: set(p.held) == {"gone"} and set(d.worker.worker.remotes) == {p.scheduler.scheduler.addresses[0]}, p, d)
        self.assertEqual((d.loaded, d.failed, d.worker.worker.farewells), ({}, {}, []))

    def test_vllm_55181_a_transfer_that_raises_ends_its_request(self):
        p, d = self.engine("p"), self.engine("d")
        good = p.prefill("good", 32, 5.0)
        d.worker.worker.CONNECT_SECONDS = 0.5
        for broken in ({"remote_block_ids": [BLOCKS + 7, 0]}, {"remote_addresses": ["127.0.0.1:1"]}, {"remote_addresses": ["nonsense"]},
                       {"remote_slot": 10**9}, {"remote_token": 12345}):
            with self.subTest(**broken):
                d.decode("bad", 32, {**good, **broken})
                self.steps(lambda: "bad" in d.failed, p, d)
                d.release("bad")
        with self.assertLogs("fairway.vllm", "WARNING"):
            for broken in ({"remote_addresses": []}, {"remote_addresses": "127.0.0.1:1"}, {"remote_block_ids": [2**70]}, {"remote_block_ids": None},
                           {"remote_request_id": 5}, {"remote_slot": "x"}, {"remote_token": None}, {"remote_block_ids": [1]}, {"remote_block_size": 32}):
                request = d.request("senseless", 32, {**good, **broken})
                self.assertEqual(d.scheduler.get_num_new_matched_tokens(request, 0), (0, False))  # computed here
                d.scheduler.update_state_after_alloc(request, kv_blocks(d.free[:2]), 0)
                self.assertEqual(d.scheduler.request_finished(request, d.free[:2]), (False, None))
            d.step()
        # What a wrong token or page read has told "done" of, the prefill gave back; another is served as ever.
        d.worker.worker.CONNECT_SECONDS = 30.0
        again = p.prefill("again", 32, 6.0)
        d.decode("again", 32, again)
        self.steps(lambda: "again" in d.loaded, p, d)
        self.assertTrue(d.holds(d.loaded["again"], 6.0))

    def test_vllm_50047_a_dead_decoders_blocks_are_free_at_once(self):
        p, d = self.engine("p"), Engine("d")
        d.worker.worker._say_farewells = lambda: None  # it dies before it can say that it has read
        d.decode("r", 200, p.prefill("r", 200, 1.0))
        self.steps(lambda: p.worker.worker.offers["r"][2] is not None, p, d)
        self.assertIn("r", p.held)
        d.shutdown()
        self.steps(lambda: not p.held, p)  # no lease, no router
        self.assert_nothing_left(p)

    def test_vllm_50047_a_dead_prefills_requests_fail_at_once(self):
        p, d = Engine("p"), self.engine("d")
        first = p.prefill("first", 64, 1.0)
        d.decode("first", 64, first)
        self.steps(lambda: "first" in d.loaded, p, d)
        second = p.prefill("second", 64, 2.0)
        p.shutdown()
        d.worker.worker.CONNECT_SECONDS = 0.5
        d.decode("second", 64, second)
        self.steps(lambda: "second" in d.failed, d)
        d.worker.worker.CONNECT_SECONDS = 30.0
        self.assertEqual(d.worker.worker.remotes, {})
        # The same name comes back, and is a new one.
        p2 = self.engine("p")
        third = p2.prefill("third", 64, 3.0)
        d.decode("third", 64, third)
        self.steps(lambda: "third" in d.loaded, p2, d)
        self.assertTrue(d.holds(d.loaded["third"], 3.0))

    def test_vllm_55471_one_broken_pair_heals_while_others_go_on(self):
        p, one, two = self.engine("p"), self.engine("one"), self.engine("two")
        for name, d in (("a", one), ("b", two)):
            d.decode(name, 32, p.prefill(name, 32, 1.0))
            self.steps(lambda: name in d.loaded, p, one, two)
            d.release(name)
        for round_number in range(5):
            future = next(iter(one.worker.worker.remotes.values()))
            future.result()[0].peer.disconnect()  # this pair alone
            for name, d in (("a", one), ("b", two)):
                request = f"{name}{round_number}"
                for attempt in range(5):  # a load that was cut off fails, is computed here, and the next one heals
                    d.decode(f"{request}.{attempt}", 32, p.prefill(f"{request}.{attempt}", 32, 7.0 + attempt))
                    self.steps(lambda: f"{request}.{attempt}" in d.loaded or f"{request}.{attempt}" in d.failed, p, one, two)
                    done = f"{request}.{attempt}" in d.loaded
                    if done:
                        self.assertTrue(d.holds(d.loaded[f"{request}.{attempt}"], 7.0 + attempt))
                    d.release(f"{request}.{attempt}")
                    if done:
                        break
                self.assertTrue(done)
                if d is two:
                    self.assertEqual(attempt, 0)  # the other pair noticed nothing

    def test_vllm_55471_a_frozen_peer_holds_up_nobody_else(self):
        """Not even for one step of the engine: what a worker asks of a peer it does not wait for. A step that did would last until
        that peer counts as dead, and its request would have failed before any other one is loaded."""
        script = """
            import json, sys
            from vllm_engine import Engine
            p = Engine("frozen", transports=["tcp"])
            for name in ("first", "second"):
                print(json.dumps(p.prefill(name, 32, 4.0)), flush=True)
            for line in sys.stdin:
                p.step()
            """
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            first, second = (json.loads(child.stdout.readline()) for _ in range(2))
            p, d = self.engine("p", transports=["tcp"]), self.engine("d", transports=["tcp"], peer_timeout=2.0)
            d.decode("first", 32, first)
            self.steps(lambda: "first" in d.loaded, d)
            self.assertTrue(d.holds(d.loaded["first"], 4.0))
            d.decode("warm", 32, p.prefill("warm", 32, 1.0))
            self.steps(lambda: "warm" in d.loaded, p, d)
            self.freeze(child.pid)
            d.decode("second", 32, second)
            for number in range(3):
                name = f"other {number}"
                d.decode(name, 16, p.prefill(name, 16, 2.0))
                self.steps(lambda: name in d.loaded, p, d)
                d.release(name)
            self.assertIn("second", d.loading)
            self.steps(lambda: "second" in d.failed, d)  # its peer counts as dead
            d.release("second")
        finally:
            child.kill()
            child.communicate()

    def test_nobody_is_served_from_blocks_that_were_taken_back(self):
        p, d = self.engine("p", unclaimed_seconds=0.05), self.engine("d")
        params = p.prefill("late", 64, 1.0)
        self.steps(lambda: not p.held, p)  # the decoder did not come in time
        stranger = p.blocks(4)
        p.fill(stranger, 9.0)
        d.decode("late", 64, params)
        self.steps(lambda: "late" in d.failed or "late" in d.loaded, p, d)
        self.assertIn("late", d.failed)

    def test_aborts_and_preemptions_leave_nothing(self):
        p, d = self.engine("p"), self.engine("d")
        for number in range(30):
            name = f"r{number}"
            d.decode(name, 100, p.prefill(name, 100, float(number)))
            if number % 3 == 0:
                d.abort(name)
            elif number % 3 == 1:
                d.step()
                d.step(preempted=[name])
            self.steps(lambda: name in d.loaded or name in d.failed, p, d)
            d.release(name)
            self.steps(lambda: not p.held, p, d)
        self.assert_nothing_left(p, d)

    def test_hundreds_of_transfers_with_lost_connections_leave_nothing(self):
        p, d = self.engine("p"), self.engine("d")
        lost = 0
        for number in range(500):
            name = f"r{number}"
            if number % 50 == 49:
                for future in list(d.worker.worker.remotes.values()):
                    future.result()[0].peer.disconnect()
                lost += 1
            d.decode(name, 40, p.prefill(name, 40, float(number)))
            self.steps(lambda: name in d.loaded or name in d.failed, p, d)
            if name in d.loaded:
                self.assertTrue(d.holds(d.loaded[name], number))
            d.release(name)
            if number % 50 == 49:
                for offer in p.worker.worker.offers.values():
                    offer[1] = 0
            self.steps(lambda: len(p.held) < 4, p, d)
        for offer in p.worker.worker.offers.values():
            offer[1] = 0 if offer[2] is None else offer[1]
        self.steps(lambda: not p.held, p, d)
        gc.collect()
        self.assert_nothing_left(p, d)
        self.assertLess(d.worker.worker.engine.metrics()["regions"], 12)
        self.assertLess(d.worker.worker.engine.metrics()["transfers_in_use"], 100)
        self.assertEqual(lost, 10)


if __name__ == "__main__":
    unittest.main()
