"""Shows that scripts/run_cases counts each case once and right, whatever the program does: against a program that plays
GoogleTest's part and does what its cases' names say."""

import os
import pathlib
import stat
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml

RUN_CASES = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "run_cases"

PROGRAM = """#!/usr/bin/env python3
import os, sys, time
cases = {cases!r}
if sys.argv[1] == "--gtest_list_tests":
    print("A.\\n" + "".join("  " + case + "\\n" for case in cases))
    sys.exit(0)
wanted = open(sys.argv[-1].split("=", 1)[1]).read().split("=", 1)[1].split(":")
failed = False
def say(text):
    print(text, flush=True)
for case in cases:
    name = "A." + case
    if name not in [w.strip() for w in wanted]:
        continue
    if case == "NoStart": sys.exit(3)
    if case == "NoStartButWell": sys.exit(0)
    if case == "Nowhere": say("it: Skipped\\nno guest\\n[  SKIPPED ] it"); sys.exit(69)
    say("[ RUN      ] " + name)
    if case == "Crash": os.kill(os.getpid(), 11)
    if case == "Hang": time.sleep(60)
    if case == "Exit": sys.exit(0)
    if case == "Fail": say("wrong"); failed = True; say("[  FAILED  ] " + name + ", where GetParam() = 7 (1 ms)")
    elif case == "Skip": say("f.cc:1: Skipped\\nno GPU\\n[  SKIPPED ] " + name + " (0 ms)")
    else: say("[       OK ] " + name + " (2 ms)")
if "A.Leaks" in [w.strip() for w in wanted]: say("leaked"); sys.exit(23)
sys.exit(1 if failed else 0)
"""


class RunCases(unittest.TestCase):
    def run_program(self, *cases, options=(), **environment):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program"
            program.write_text(PROGRAM.format(cases=cases))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            clean = {k: v for k, v in os.environ.items() if k not in ("FAIRWAY_MATCH", "FAIRWAY_LONG", "FAIRWAY_RESULTS")}
            done = subprocess.run([RUN_CASES, "--limit", "1", *options, program], capture_output=True, text=True,
                                  env={**clean, "FAIRWAY_RESULTS": folder, **environment})
            found = [(case.get("name"), case.get("status")) for case in xml.parse(program.with_suffix(".xml")).getroot()]
            return done.returncode, found, done.stdout

    def test_each_case_is_counted(self):
        status, found, said = self.run_program("One", "Skip", "Fail", "Two")
        self.assertEqual(status, 1)
        self.assertEqual(found, [("A.One", "run"), ("A.Skip", "notrun"), ("A.Fail", "fail"), ("A.Two", "run")])
        self.assertIn("wrong", said)
        self.assertEqual(self.run_program("One", "Skip")[0], 0)
        self.assertEqual(self.run_program("Skip")[0], 77)

    def test_one_that_crashes_hangs_or_exits_fails_alone(self):
        for bad in ("Crash", "Hang", "Exit"):
            status, found, _ = self.run_program("One", bad, "Two")
            self.assertEqual((status, found), (1, [("A.One", "run"), ("A." + bad, "fail"), ("A.Two", "run")]))

    def test_a_bad_end_after_good_cases_is_a_failure(self):
        status, found, said = self.run_program("One", "Leaks")
        self.assertEqual((status, found[-1]), (1, ("after A.Leaks", "fail")))
        self.assertIn("leaked", said)

    def test_a_program_that_comes_to_no_case_fails_them_all_and_one_without_a_place_skips_them(self):
        self.assertEqual(self.run_program("NoStart", "One")[1], [("A.NoStart", "fail"), ("A.One", "fail")])
        self.assertEqual(self.run_program("NoStartButWell")[1], [("A.NoStartButWell", "fail")])
        status, found, _ = self.run_program("Nowhere", "One")
        self.assertEqual((status, found), (77, [("A.Nowhere", "notrun"), ("A.One", "notrun")]))

    def test_cases_are_chosen(self):
        names = lambda *a, **k: [name for name, _ in self.run_program("One", "Two", "Three", *a, **k)[1]]
        self.assertEqual(names(options=("--long", "A.T*")), ["A.One"])
        self.assertEqual(names(options=("--long", "A.T*"), FAIRWAY_LONG="1"), ["A.One", "A.Two", "A.Three"])
        self.assertEqual(names(FAIRWAY_MATCH="T.o"), ["A.Two"])
        self.assertEqual(names(options=("--shard", "0/2")) + names(options=("--shard", "1/2")), ["A.One", "A.Three", "A.Two"])
        self.assertEqual(names(options=("--each", "*")), ["A.One", "A.Two", "A.Three"])
        self.assertEqual(names(options=("--each", "A.One:A.Tw?")), ["A.Three", "A.One", "A.Two"])


if __name__ == "__main__":
    unittest.main()
