"""Each chapter of docs/tutorial: its program does what it should, and prints what the page says.

In a page's ```console blocks a line is a command ("$ ...") or printed; of printed lines every number stands for any number. A ```text
block behind one holds lines of what its last command prints, of recorded machines and so to the letter."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SECONDS = 100  # before a program counts as hung


def blocks(page):
    """The ```console blocks of a page: of each its commands and the lines that they print."""
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        lines = block.rstrip("\n").split("\n")
        yield [line[2:] for line in lines if line.startswith("$ ")], [line for line in lines if not line.startswith("$ ")]


def page_of(chapter):
    (page,) = (ROOT / "docs/tutorial").glob(f"{chapter}-*.md")
    return page.read_text()


def shown(page):
    """Of each ```console block the commands, and the lines of the ```text block right behind it."""
    for console, text in re.findall(r"^```console\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", page, re.MULTILINE | re.DOTALL):
        yield [line[2:] for line in console.split("\n") if line.startswith("$ ")], [line for line in text.split("\n") if line.strip()]


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
        printed = {shape(line) for line in output.split("\n")}
        told = [line for _, lines in blocks(page_of(chapter)) for line in lines]
        self.assertTrue(told, chapter)
        missing = [line for line in told if shape(line) not in printed]
        self.assertEqual(missing, [], f"chapter {chapter} says so, printed was:\n{output}")

    def walks(self, chapter, script):
        """A script that asks the tool for recorded machines: it runs each command of the page, and each prints what the page shows."""
        output = self.run_to_end(ROOT / "examples" / script)
        steps = dict(part.split("\n", 1) for part in output.split("\n$ ")[1:])
        page = list(shown(page_of(chapter)))
        self.assertTrue(page, chapter)
        for commands, lines in page:
            self.assertEqual([command for command in commands if command not in steps], [], f"{script} does not run them")
            printed = [line.rstrip() for line in steps[commands[-1]].split("\n")]
            missing = [line for line in lines if line.rstrip() not in printed]
            self.assertEqual(missing, [], f"chapter {chapter} says that `{commands[-1]}` prints so, printed was:\n{steps[commands[-1]]}")

    def pair(self, chapter, name):
        target = self.start(name)
        output = self.run_to_end(name, target.address)
        code, theirs = target.end()
        self.assertEqual(code, 0, theirs)
        self.says(chapter, output + theirs)

    def test_each_chapter_has_a_picture_and_a_program_of_at_most_80_lines(self):
        pages = sorted((ROOT / "docs/tutorial").glob("[0-9][0-9]-*.md"))
        self.assertEqual(len(pages), 15)
        for page in pages:
            (program,) = (ROOT / "examples").glob(f"{page.name[:2]}_*")
            self.assertLessEqual(len(program.read_text().split("\n")), 81, program)
            for each in (page, page.parent / "zh-CN" / page.name):
                self.assertRegex(each.read_text(), r"!\[[^]]+\]\([^)]+\.svg\)", each)

    def test_arguments_that_a_program_does_not_have(self):
        programs = {"01_two_processes": "[ADDRESS]", "02_notifications": "[ADDRESS]", "03_pages": "[ADDRESS]", "05_explain": "", "12_collectives": "",
                    "04_a_peer_dies": "[dies | ADDRESS...]", "07_verbs": "DEVICE DEVICE", "08_fabric": "[PROVIDER]", "13_kernels": ""}
        for name, usage in programs.items():
            path = shutil.which(name)
            if path is None:
                self.assertIn(name, ("07_verbs", "08_fabric", "13_kernels"))  # of what this build does not have
                continue
            for words in (["--help"], ["-x", "1", "2"], *([["a"], ["a", "1"], ["/tmp"]] if usage == "" else [])):
                with self.subTest(name=name, words=words):
                    done = subprocess.run([path, *words], capture_output=True, text=True, timeout=SECONDS)
                    self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", f"usage: {path} {usage}".rstrip() + "\n"))

    def test_1_two_processes(self):
        self.pair("01", "01_two_processes")

    def test_2_notifications(self):
        self.pair("02", "02_notifications")

    def test_3_pages(self):
        self.pair("03", "03_pages")

    def test_3_its_explanation_is_of_a_peer_that_is_there(self):
        for _ in range(5):
            target = self.start("03_pages")
            self.assertNotIn("is gone", self.run_to_end("03_pages", target.address))
            self.assertEqual(target.end()[0], 0)

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
        self.walks("06", "06_topology.sh")

    @unittest.skipUnless(shutil.which("07_verbs"), "this build has no verbs")
    @unittest.skipUnless(os.environ.get("FAIRWAY_LONG"), "a virtual machine starts in the long tests only")
    def test_7_verbs(self):
        tests = ROOT / "tests/rdma_vm"
        if subprocess.run([tests / "need_guest", "chapter 7"], stdout=subprocess.DEVNULL).returncode:
            self.skipTest("no virtual machine can be had here")
        self.says("07", self.run_to_end(tests / "vm", "--seconds", "90", "--", shutil.which("07_verbs"), "rxe0", "rxe1"))

    @unittest.skipUnless(shutil.which("08_fabric"), "this build has no libfabric")
    def test_8_libfabric(self):
        self.says("08", self.run_to_end("08_fabric", "tcp"))
        self.assertIn("No data available", self.run_to_end("08_fabric", "no-such-provider", good=1))

    @unittest.skipUnless(shutil.which("fairway"), "this build has no tool")
    def test_9_nvlink(self):
        self.walks("09", "09_nvlink.sh")

    @unittest.skipUnless(shutil.which("fairway"), "this build has no tool")
    def test_10_gpudirect(self):
        self.walks("10", "10_gpudirect.sh")

    @unittest.skipUnless(os.environ.get("FAIRWAY_NCCL_PLUGIN"), "this build has no plugin for NCCL")
    def test_11_nccl_two_hosts(self):
        if subprocess.run(["unshare", "--map-root-user", "--net", "true"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no network namespaces here")
        self.says("11", self.run_to_end(ROOT / "examples/11_nccl_two_hosts.sh"))

    def test_12_collectives(self):
        output = self.run_to_end("12_collectives")
        self.says("12", output)
        self.assertRegex(output, r"rank 3 is missed: peer_dead: ")

    @unittest.skipUnless(shutil.which("13_kernels"), "this build has no nvcc")
    def test_13_kernels(self):
        program = self.start("13_kernels")
        code, output = program.end()
        if code == 77:
            self.skipTest("there is no GPU")
        self.assertEqual(code, 0, output)
        self.says("13", output)

    @unittest.skipUnless(importlib.util.find_spec("fairway") and importlib.util.find_spec("numpy"), "no Python module, or no NumPy")
    def test_14_kv_cache(self):
        program = ROOT / "examples/14_kv_cache.py"
        target = self.start(sys.executable, program)
        output = self.run_to_end(sys.executable, program, target.address)
        code, theirs = target.end()
        self.assertEqual(code, 0, theirs)
        self.says("14", output + theirs)

    @unittest.skipUnless(shutil.which("fairway"), "this build has no tool")
    def test_15_diagnosing(self):
        self.walks("15", "15_diagnosing.sh")


if __name__ == "__main__":
    unittest.main()
