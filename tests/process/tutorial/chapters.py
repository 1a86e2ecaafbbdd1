"""Each chapter of docs/tutorial: its program does what it should, and prints what the page says.

In a page's ```console blocks a line is a command ("$ ...") or printed; of printed lines every number stands for any number."""

import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SECONDS = 100  # before a program counts as hung


def blocks(page):
    """The ```console blocks of a page: of each its commands and the lines that they print."""
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        lines = block.rstrip("\n").split("\n")
        yield [line[2:] for line in lines if line.startswith("$ ")], [line for line in lines if not line.startswith("$ ")]


def shape(line):
    return re.sub(r"\d[\d.]*", "#", line.strip())


class Program:
    """A program of the tutorial that runs; its first line is its address."""

    def __init__(self, *words):
        self.words = words
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
        self.address = self.process.stdout.readline().decode().strip()

    def end(self):
        try:
            rest, _ = self.process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"{self.words} has not ended: {self.process.communicate()[0].decode()}") from None
        return self.process.returncode, f"{self.address}\n{rest.decode()}"

    def stop(self):  # what a failed test left running
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Chapters(unittest.TestCase):
    def start(self, *words):
        program = Program(*words)
        self.addCleanup(program.stop)
        return program

    def run_to_end(self, *words, good=0):
        program = self.start(*words)
        code, output = program.end()
        self.assertEqual(code, good, f"{words}: {output}")
        return output

    def says(self, chapter, output):
        """Every line that the page says is printed was printed."""
        (page,) = (ROOT / "docs/tutorial").glob(f"{chapter}-*.md")
        printed = {shape(line) for line in output.split("\n")}
        told = [line for _, lines in blocks(page.read_text()) for line in lines]
        self.assertTrue(told, page)
        missing = [line for line in told if shape(line) not in printed]
        self.assertEqual(missing, [], f"{page.name} says so, printed was:\n{output}")

    def pair(self, chapter, name):
        target = self.start(name)
        output = self.run_to_end(name, target.address)
        code, theirs = target.end()
        self.assertEqual(code, 0, theirs)
        self.says(chapter, output + theirs)

    def test_1_two_processes(self):
        self.pair("01", "01_two_processes")

    def test_2_notifications(self):
        self.pair("02", "02_notifications")

    def test_3_pages(self):
        self.pair("03", "03_pages")

    def test_4_a_peer_dies(self):
        first, second = self.start("04_a_peer_dies", "dies"), self.start("04_a_peer_dies")
        output = self.run_to_end("04_a_peer_dies", first.address, second.address)
        self.assertEqual(first.end()[0], -9)
        code, theirs = second.end()
        self.assertEqual(code, 0, theirs)
        self.assertIn("peer_dead: ", output)
        self.says("04", output + theirs)

    def test_4_without_anybody_left_it_fails(self):
        first = self.start("04_a_peer_dies", "dies")
        self.assertNotIn("are at", self.run_to_end("04_a_peer_dies", first.address, good=1))

    def test_5_explain(self):
        self.says("05", self.run_to_end("05_explain"))

    @unittest.skipUnless(shutil.which("fairway"), "this build has no tool")
    def test_6_topology(self):
        output = self.run_to_end(ROOT / "examples/06_topology.sh")
        steps = dict(part.split("\n", 1) for part in output.split("\n$ ")[1:])
        told = [command for commands, _ in blocks(next((ROOT / "docs/tutorial").glob("06-*.md")).read_text()) for command in commands]
        self.assertEqual([command for command in told if command not in steps], [])
        # What the chapter rests on, and not how it is worded.
        for command, fact in (
            ("fairway topo --from h20.json", r"GPU4 .*PIX"),
            ("fairway topo nics --gpu 4 --from h20.json", r" 1 +mlx5_bond_2 +PIX"),
            ("fairway predict --bond-odds 2", r"\n4 +77\.1 %"),
            ("fairway predict --from h20.json --measured h20-ib_write_bw.csv --nic 0 --loop", r"GPU4 .* SYS +15\.5 .* 15\.55"),
            ("fairway doctor --from h20.json --measured h20-ib_write_bw.csv --nic 0 --loop", r"mlx5_bond_2"),
            ("fairway predict --from h20.json gpu4:nic0 --routes", r"over GPU1 +24\.4"),
        ):
            self.assertRegex(steps[command], fact)


if __name__ == "__main__":
    unittest.main()
