"""The connector for vLLM, under a driver that plays vLLM's scheduler and worker in their order of calls, aborts and preemptions
included. Tests name the reports of vLLM's that they hold against."""

import enum
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import types
import unittest

import fairway
import numpy as np
from fairway.vllm import FairwayConnector
from fairway.vllm.base import KVConnectorRole

BLOCKS, BLOCK = 64, 16

try:
    from vllm.v1.request import RequestStatus  # type: ignore
except ImportError:

    class RequestStatus(enum.IntEnum):
        """vLLM's, vllm/v1/request.py at commit 003df2961dd8, as far as a connector looks."""

        WAITING = enum.auto()
        RUNNING = enum.auto()
        PREEMPTED = enum.auto()
        FINISHED_STOPPED = enum.auto()
        FINISHED_LENGTH_CAPPED = enum.auto()
        FINISHED_ABORTED = enum.auto()
        FINISHED_IGNORED = enum.auto()
        FINISHED_ERROR = enum.auto()


def kv_blocks(ids, hashed=()):
    """vLLM's KVCacheBlocks: one tuple of KVCacheBlocks a group; a block of the prefix cache has a hash."""
    return types.SimpleNamespace(blocks=(tuple(types.SimpleNamespace(block_id=i, block_hash=b"hash" if i in hashed else None) for i in ids),))


class Engine:
    """One vLLM engine as a connector sees it: a scheduler, one worker, a KV cache of two layers, blocks."""

    def __init__(self, name, **extra):
        config = types.SimpleNamespace(
            cache_config=types.SimpleNamespace(block_size=BLOCK),
            kv_transfer_config=types.SimpleNamespace(engine_id=name, kv_connector_extra_config={"name": name, "peer_timeout": 10.0, **extra}))
        cache = types.SimpleNamespace(num_blocks=BLOCKS)
        self.scheduler = FairwayConnector(config, KVConnectorRole.SCHEDULER, cache)
        self.worker = FairwayConnector(config, KVConnectorRole.WORKER, cache)
        self.caches = {"layers.0": np.zeros((2, BLOCKS, BLOCK, 8), np.float32), "layers.1": np.zeros((BLOCKS, 2, BLOCK, 8), np.float32)}
        self.worker.worker.CONNECT_SECONDS = self.worker.worker.CLAIM_SECONDS = 30.0  # a busy machine is no frozen peer
        self.worker.register_kv_caches(self.caches)
        self.scheduler.set_xfer_handshake_metadata({0: self.worker.get_handshake_metadata()})
        self.free = list(range(BLOCKS))
        self.held = {}  # request -> blocks that wait for the connector
        self.loading = {}  # request -> (request, blocks)
        self.ended = set()  # for the next get_finished
        self.loaded, self.failed = {}, {}

    def blocks(self, count):
        taken, self.free = self.free[:count], self.free[count:]
        assert len(taken) == count, "the engine is out of blocks"
        return taken

    def fill(self, blocks, value):
        self.caches["layers.0"][:, blocks] = value
        self.caches["layers.1"][blocks] = value + 1

    def holds(self, blocks, value):
        return (self.caches["layers.0"][:, blocks] == value).all() and (self.caches["layers.1"][blocks] == value + 1).all()

    def prefill(self, name, tokens, value):
        """A whole prefill: what the router hands to a decoder."""
        request = self.request(name, tokens, {"do_remote_decode": True})
        assert self.scheduler.get_num_new_matched_tokens(request, 0) == (0, False)
        blocks = self.blocks(-(-tokens // BLOCK))
        self.scheduler.update_state_after_alloc(request, kv_blocks(blocks), 0)
        self.fill(blocks, value)
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
        waits, params = self.scheduler.request_finished(request, blocks)
        assert waits
        self.held[name] = blocks
        self.step()
        return params

    @staticmethod
    def request(name, tokens, params):
        return types.SimpleNamespace(request_id=name, num_prompt_tokens=tokens, status=RequestStatus.WAITING, kv_transfer_params=dict(params))

    def decode(self, name, tokens, params, cached=(), more=0):
        """Admits a request whose pages are elsewhere; `cached`: blocks that this engine's prefix cache has of its start, `more`: of
        look-ahead slots behind the prompt's."""
        request = self.request(name, tokens, params)
        found = len(cached) * BLOCK
        count, later = self.scheduler.get_num_new_matched_tokens(request, found)
        assert (count, later) == (tokens - found, True)
        blocks = self.blocks(-(-tokens // BLOCK) - len(cached) + more)
        self.scheduler.update_state_after_alloc(request, kv_blocks([*cached, *blocks], cached), count)
        self.loading[name] = blocks
        return blocks

    def abort(self, name):
        self.ended.add(name)

    def step(self, preempted=()):
        """One step of the engine, as vLLM's scheduler and model runner make it."""
        metadata = self.scheduler.build_connector_meta(types.SimpleNamespace(preempted_req_ids=set(preempted)))
        self.worker.handle_preemptions(metadata)
        self.worker.bind_connector_metadata(metadata)
        self.worker.start_load_kv(None)
        for layer in self.caches:
            self.worker.wait_for_layer_load(layer)
            self.worker.save_kv_layer(layer, self.caches[layer], None)
        self.worker.wait_for_save()
        ended, self.ended = self.ended, set()
        sent, received = self.worker.get_finished(ended)
        errors = self.worker.get_block_ids_with_load_errors()
        self.worker.clear_connector_metadata()
        self.scheduler.update_connector_output(types.SimpleNamespace(finished_sending=sent, finished_recving=received))
        for name in sent or ():
            self.free += self.held.pop(name)
        for name in received or ():
            blocks = self.loading.pop(name)
            (self.failed if errors & set(blocks) else self.loaded)[name] = blocks

    def release(self, name):
        """The request has made its tokens, or was computed anew."""
        self.free += (self.loaded if name in self.loaded else self.failed).pop(name)

    def shutdown(self):
        self.worker.shutdown()


class Connector(unittest.TestCase):
    def engine(self, name, **extra):
        made = Engine(name, **extra)
        self.addCleanup(made.shutdown)
        return made

    def steps(self, until, *engines, seconds=60):
        """All well below the 480 seconds of a lease (unclaimed_seconds)."""
        deadline = time.monotonic() + seconds
        while not until():
            self.assertLess(time.monotonic(), deadline, "a request did not end")
            for engine in engines:
                engine.step()
            time.sleep(0.0005)

    def freeze(self, pid):
        """Its threads go on until one of them has seen the signal."""
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while any(stat.read_text().rpartition(")")[2].split()[0] != "T" for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")):
            self.assertLess(time.monotonic(), deadline, "the process goes on")
            time.sleep(0.001)

    def assert_nothing_left(self, *engines):
        for engine in engines:
            self.assertEqual(sorted(engine.free), list(range(BLOCKS)))
            self.assertEqual((engine.held, engine.loading), ({}, {}))
            self.assertEqual((engine.worker.worker.loading, engine.worker.worker.offers), ({}, {}))
            self.assertEqual(len(engine.scheduler.scheduler.free), 4096)

    def test_pages_arrive_and_are_given_back(self):
        p, d = self.engine("p"), self.engine("d")
        for number in range(20):
            params = p.prefill(f"r{number}", 70, float(number))
            d.decode(f"r{number}", 70, params)
            self.steps(lambda: f"r{number}" in d.loaded and not p.held, p, d)
            self.assertTrue(d.holds(d.loaded[f"r{number}"], number))
            d.release(f"r{number}")
        self.assert_nothing_left(p, d)

    def numbered(self, engine, blocks, first):
        """Each block of its own content."""
        for number, block in enumerate(blocks):
            engine.fill([block], float(first + number))

    def test_a_prefix_that_is_here_is_never_written(self):
        """The decoder has the first two blocks in its prefix cache: other requests read them at this moment."""
        p, d = self.engine("p"), self.engine("d")
        shared = d.blocks(2)
        self.numbered(d, shared, 500)
        params = p.prefill("r", 48, 0.0)
        self.numbered(p, params["remote_block_ids"], 100)
        mine = d.decode("r", 48, params, cached=shared)
        self.assertEqual([(load.local_blocks, load.remote_blocks) for load in d.scheduler.scheduler.next.loads], [(mine, params["remote_block_ids"][2:])])
        self.steps(lambda: "r" in d.loaded and not p.held, p, d)
        self.assertTrue(d.holds(mine, 102))
        self.assertTrue(d.holds(shared[:1], 500) and d.holds(shared[1:], 501))

    def test_a_failed_load_names_no_block_of_others(self):
        p, d = self.engine("p", unclaimed_seconds=0.05), self.engine("d")
        shared = d.blocks(2)
        self.numbered(d, shared, 500)
        params = p.prefill("r", 48, 0.0)
        self.steps(lambda: not p.held, p)  # the offer has expired
        mine = d.decode("r", 48, params, cached=shared)
        reported = set()
        errors = d.worker.get_block_ids_with_load_errors
        d.worker.get_block_ids_with_load_errors = lambda: reported.update(found := errors()) or found
        self.steps(lambda: "r" in d.failed, p, d)
        self.assertEqual(reported, set(mine))
        self.assertTrue(d.holds(shared[:1], 500) and d.holds(shared[1:], 501))

    def test_blocks_are_paired_by_position(self):
        """Look-ahead slots of one side alone, and a prompt that ends on a block's border where the other has taken the next one."""
        p, d = self.engine("p"), self.engine("d")
        for name, tokens, here, there in (("both", 40, 0, 0), ("decoder", 40, 2, 0), ("prefill", 48, 0, 1), ("more", 33, 1, 2)):
            with self.subTest(name):
                params = p.prefill(name, tokens, 0.0)
                extra = p.blocks(there)
                params["remote_block_ids"] += extra
                self.numbered(p, params["remote_block_ids"], 100)
                mine = d.decode(name, tokens, params, more=here)
                self.numbered(d, mine, 900)
                self.steps(lambda: name in d.loaded and not p.held, p, d)
                for number, block in enumerate(mine):
                    whole = -(-tokens // BLOCK)
                    self.assertTrue(d.holds([block], 100 + number if number < whole else 900 + number), f"block {number}")
                p.free += extra
                d.release(name)

    def test_too_few_blocks_fail_and_nothing_is_read(self):
        p, d = self.engine("p"), self.engine("d")
        params = p.prefill("r", 48, 1.0)
        request = d.request("r", 48, params)
        self.assertEqual(d.scheduler.get_num_new_matched_tokens(request, 0), (48, True))
        blocks = d.blocks(2)
        d.scheduler.update_state_after_alloc(request, kv_blocks(blocks), 48)
        d.loading["r"] = blocks
        self.steps(lambda: "r" in d.failed and not p.held, p, d)
        self.assertEqual(float(d.caches["layers.0"][:, blocks].sum()), 0)

    def test_only_a_prefill_that_was_computed_is_offered(self):
        p = self.engine("p")
        for status in RequestStatus:
            request = p.request("r", 32, {"do_remote_decode": True})
            request.status = status
            offered, params = p.scheduler.request_finished(request, [1, 2])
            computed = status.name in ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")
            self.assertEqual((offered, params is not None), (computed, computed), status.name)

    def test_a_policy_that_ends_requests_is_warned_of(self):
        for policy, warns in (("fail", True), ("recompute", False), (None, False)):
            config = types.SimpleNamespace(cache_config=types.SimpleNamespace(block_size=BLOCK), kv_transfer_config=types.SimpleNamespace(engine_id="e"))
            if policy is not None:
                config.kv_transfer_config.kv_load_failure_policy = policy
            with self.assertLogs("fairway.vllm", "WARNING") if warns else self.assertNoLogs("fairway.vllm", "WARNING") as logs:
                FairwayConnector(config, KVConnectorRole.SCHEDULER)
            if warns:
                self.assertIn('"kv_load_failure_policy": "recompute"', logs.output[0])

    def test_older_vllm_names_preempted_requests_themselves(self):
        p, d = self.engine("p"), self.engine("d")
        d.decode("r", 100, p.prefill("r", 100, 1.0))
        d.step()
        d.worker.handle_preemptions({"r"})
        self.steps(lambda: "r" in d.loaded or "r" in d.failed, p, d)

    def test_an_idle_prefill_engine_hears_its_decoders(self):
        """Without requests it makes no steps; more decoders than there is room for unread notes read from it all the same."""
        p, d = self.engine("p", notifications_per_peer=4), self.engine("d")
        offers = {f"r{number}": p.prefill(f"r{number}", 16, float(number)) for number in range(20)}
        for name, params in offers.items():
            d.decode(name, 16, params)
        self.steps(lambda: len(d.loaded) == 20, d)
        self.assertEqual(len(p.held), 20)
        self.steps(lambda: not p.held, p)

    def test_caches_whose_dimensions_are_in_another_order(self):
        """FlashInfer's HND: a view whose bytes lie as (blocks, 2, heads, tokens, size)."""
        made = []
        for name, order in (("p", (0, 1, 3, 2, 4)), ("d", (0, 1, 3, 2, 4)), ("other", (0, 1, 2, 3, 4))):
            side = self.engine(name).worker.worker
            storage = np.zeros((BLOCKS, 2, 4, BLOCK, 8) if order[2] == 3 else (BLOCKS, 2, BLOCK, 4, 8), np.float32)
            side.register({"hnd": storage.transpose(order)}, BLOCKS)
            made.append((side, storage))
        (p, _), (d, _), (other, _) = made
        self.assertEqual(p.names, d.names)
        self.assertNotEqual(p.names[-1], other.names[-1])  # they find none of each other's
        self.assertEqual(p.page_bytes[-1], 2 * 4 * BLOCK * 8 * 4)
        with self.assertRaisesRegex(fairway.InvalidArgument, "do not lie together"):
            p.register({"blocks last": np.zeros((2, 8, BLOCKS), np.float32).transpose(2, 0, 1)}, BLOCKS)

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
            from test_vllm import Engine
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
