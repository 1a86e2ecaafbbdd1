"""fairway kv bench, by both of its names, as a user types it."""

import contextlib
import io
import json
import os
import subprocess
import sys
import unittest

from fairway.kv.__main__ import main
from fairway.kv.shapes import SHAPES

QUICK = ["--model", "MLA", "--tokens", "32", "--seconds", "0", "--layer-ms", "0"]


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


class Bench(unittest.TestCase):
    def check(self, *words):
        code, out, err = run(*words)
        self.assertEqual(code, 0, out + err)
        for row in ("copies by NumPy", "socket with pickle", "a descriptor a page", "Fairway, pages", "layers", "over "):
            self.assertIn(row, out)
        self.assertIn("122 pages of 18432 bytes", out)

    def test_as_a_module(self):
        self.check(sys.executable, "-m", "fairway.kv", "bench", *QUICK)

    def test_its_figures_as_json(self):
        code, out, err = run(sys.executable, "-m", "fairway.kv", "bench", "--json", *QUICK)
        self.assertEqual((code, err), (0, ""))
        document = json.loads(out)
        self.assertEqual((document["format"], document["tokens"]), ("fairway-kv-bench", 32))
        ways = {row["way"]: row for row in document["rows"]}
        self.assertEqual(len(ways), 5, ways)
        self.assertEqual({(row["model"], row["bytes"]) for row in ways.values()}, {("MLA", 122 * 18432)})
        whole, layers = ways["Fairway, pages"], ways["Fairway, pages, layer by layer"]
        self.assertTrue(0 < whole["p50_ms"] <= whole["p99_ms"] and whole["mbs"] > 0 and whole["first_token_ms"] > 0, whole)
        self.assertEqual([name for name, value in layers.items() if value is None], ["mbs", "p50_ms", "p99_ms", "cpu_s_per_gib"])

    @unittest.skipUnless(os.environ.get("FAIRWAY_TOOL"), "this build has no tool: FAIRWAY_TOOL does not name it")
    def test_as_a_command_of_the_tool(self):
        tool = os.environ["FAIRWAY_TOOL"]
        self.check(tool, "kv", "bench", *QUICK)
        code, _, err = run(tool, "kv", "bench", "--python", sys.executable + "-that-is-not-there")
        self.assertEqual(code, 1)
        self.assertIn("--python names another interpreter", err)
        without = dict(os.environ, PYTHONPATH="")
        done = subprocess.run([tool, "kv", "bench", "--python", sys.executable], capture_output=True, text=True, env=without)
        self.assertEqual(done.returncode, 1)
        self.assertIn("pip install .", done.stderr)

    def test_what_makes_no_sense_is_told(self):
        for wrong, words in (
            (["bench", "--model", "8B"], "--model: '8B' is none of 7B, 70B, 70B-tp4, MLA"),
            (["bench", "--tokens", "0"], "--tokens: '0' is no whole number from 1 to 1,048,576"),
            (["bench", "--tokens", "many"], "--tokens: 'many' is no whole number"),
            (["bench", "--seconds", "-1"], "--seconds: '-1' is no number from 0 to 3,600"),
            (["bench", "--layer-ms", "nan"], "--layer-ms: 'nan' is no number"),
            (["bench", "--tokns", "1"], "--tokns"),
            (["bnch"], "no command 'bnch'"),
            ([], "fairway kv bench"),
        ):
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
                try:
                    code = main(wrong)
                except SystemExit as caught:  # argparse's
                    code = caught.code
            self.assertEqual((code, out.getvalue()), (2, ""), wrong)
            said = err.getvalue()
            self.assertTrue(said.startswith("fairway kv"), said)  # the error first and alone, with what to do
            self.assertIn(words, said)
            self.assertTrue(said.endswith("try 'fairway kv bench --help'\n") and said.count("\n") == 1, said)

    def test_pages_of_real_models(self):
        """GiB of 128 Ki tokens as the models' papers and configurations give them."""
        for name, gib in (("7B", 64), ("70B", 40), ("70B-tp4", 10), ("MLA", 8.578125)):
            shape = SHAPES[name]
            self.assertEqual(shape.pages(131072) * shape.page_bytes / 2**30, gib)


if __name__ == "__main__":
    unittest.main()
