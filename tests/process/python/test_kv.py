"""examples/kv as a user runs it: tokens of many processes equal one's while processes die; and its parts by themselves."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

KV = pathlib.Path(__file__).resolve().parents[3] / "examples/kv"
sys.path.insert(0, str(KV))
from model import BLOCK, Model  # noqa: E402
from pages import Cache, Pages, PrefixCache  # noqa: E402


class Parts(unittest.TestCase):
    def test_a_cache_cut_by_heads_gives_the_same_bits(self):
        prompt = list(range(70))
        expected = Model().generate(prompt, 6, Cache(Pages(8), range(8)))
        for ranks in (2, 4):
            self.assertEqual(Model().generate(prompt, 6, Cache(Pages(8, ranks), [3, 1, 7, 0, 5, 2, 4, 6])), expected)

    def test_blocks_of_a_prefix_are_the_ones_that_would_be_computed(self):
        model, pages = Model(), Pages(8)
        model.prefill(list(range(40)), Cache(pages, range(8)))
        left = pages.arrays[0][:, :, :2].copy()
        model.prefill(list(range(32)) + [9] * 30, Cache(pages, range(8)))
        np.testing.assert_array_equal(pages.arrays[0][:, :, :2], left)

    def test_prefixes_are_shared_and_evicted(self):
        pages = Pages(8)
        prefixes = PrefixCache(pages)
        prompt = list(range(3 * BLOCK + 1))
        table, here = prefixes.take(prompt, 8)
        self.assertEqual((len(table), here), (4, 0))
        prefixes.remember(prompt, table)
        again, here = prefixes.take(prompt[: 2 * BLOCK + 1] + [7] * 5, 8)
        self.assertEqual((again[:2], here), (table[:2], 2))
        prefixes.give_back(table)
        prefixes.give_back(again)
        self.assertEqual(len(pages.free), 5)  # three are remembered
        full, here = prefixes.take([200] * (7 * BLOCK), 8)  # they go for who needs them
        self.assertEqual((len(full), here), (8, 0))
        self.assertIsNone(prefixes.take([1], 1))
        prefixes.give_back(full)


class Example(unittest.TestCase):
    def test_tokens_are_one_processs_while_others_die(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = f"{folder}/timeline.svg"
            done = subprocess.run([sys.executable, KV / "run.py", "--requests", "40", "--chaos", "3", "--picture", picture],
                                  capture_output=True, text=True, timeout=280)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("tokens that differ from one process's: 0 of 40 requests", done.stdout)
            self.assertIn("arrived", pathlib.Path(picture).read_text())

    def test_options_that_make_no_sense_are_told(self):
        for wrong in (["--prefills", "3"], ["--decodes", "x"], ["--requests", "0"], ["--tokens", "1000"]):
            done = subprocess.run([sys.executable, KV / "run.py", *wrong], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn("error:", done.stderr)


if __name__ == "__main__":
    unittest.main()
