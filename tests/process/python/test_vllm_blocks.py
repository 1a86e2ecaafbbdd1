"""Which blocks a decoder loads from where, what a prefill engine offers, and how caches lie: nothing that another request reads is
written, and block i holds the same tokens on both sides."""

import types
import unittest

import fairway
import numpy as np
from fairway.vllm import FairwayConnector
from fairway.vllm.base import KVConnectorRole

from vllm_engine import BLOCK, BLOCKS, ConnectorTest, RequestStatus, kv_blocks


class Blocks(ConnectorTest):
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


if __name__ == "__main__":
    unittest.main()
