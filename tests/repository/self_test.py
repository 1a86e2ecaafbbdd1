"""Shows that every check of the repository can fail, by giving each a tree that it must refuse and one it must accept."""
# size: each check of the repository is tried here, with a tree that it must accept and trees that it must refuse

import importlib.machinery
import importlib.util
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import documents
import layers
import mutants
import origins
import purity
import sizes
import spack
import tree
import variables


def load_summary():
    path = str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "summary")
    loader = importlib.machinery.SourceFileLoader("summary", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("summary", loader))
    loader.exec_module(module)
    return module


class Checks(unittest.TestCase):
    def problems(self, check, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(check(root))

    def refuses(self, check, files, word):
        found = self.problems(check, files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(word, found[0])

    def accepts(self, check, files):
        self.assertEqual(self.problems(check, files), [])


class Variables(Checks):
    LIST = 'constexpr Variable kVariables[] = {\n    {"FAIRWAY_A", kLibrary, "", ""},\n};\n'

    def test_what_is_read_is_listed_and_what_is_listed_is_read(self):
        self.accepts(variables.check, {"tools/variables.cc": self.LIST, "src/sys/a.cc": 'std::getenv("FAIRWAY_A");\n'})
        self.refuses(variables.check, {"tools/variables.cc": self.LIST, "src/sys/a.cc": 'getenv("FAIRWAY_A"), getenv("FAIRWAY_B");\n'},
                     "FAIRWAY_B is missing")
        self.refuses(variables.check, {"tools/variables.cc": self.LIST, "python/fairway/a.py": "'set FAIRWAY_A to 1'\n"},
                     "nothing reads FAIRWAY_A")


class Layers(Checks):
    def include(self, path, header, **others):
        return {path: f'#include "{header}"\n', "include/fairway/status.h": "", **others}

    def test_downward_and_own_includes_are_fine(self):
        self.accepts(layers.check, self.include("src/engine/a.cc", "transport/transport.h"))
        self.accepts(layers.check, self.include("src/transport/tcp/a.cc", "transport/transport.h"))
        self.accepts(layers.check, self.include("src/transport/tcp/a.cc", "transport/tcp/lane.h"))
        self.accepts(layers.check, self.include("src/transport/registry.cc", "transport/tcp/tcp.h"))
        self.accepts(layers.check, self.include("tools/a.cc", "fairway/status.h"))
        self.accepts(layers.check, self.include("tools/a.cc", "b.h", **{"tools/b.h": ""}))

    def test_upward_and_sideways_includes_are_not(self):
        self.refuses(layers.check, self.include("src/core/a.cc", "sys/fd.h"), "src/core may include only core")
        self.refuses(layers.check, self.include("src/transport/tcp/a.cc", "transport/host/segment.h"), "transport/tcp")
        self.refuses(layers.check, self.include("src/transport/tcp/a.cc", "engine/worker.h"), "transport/tcp")
        self.refuses(layers.check, self.include("src/transport/shared.cc", "transport/tcp/tcp.h"), "src/transport may")
        self.refuses(layers.check, self.include("src/engine/a.cc", "transport/tcp/tcp.h"), "src/engine may")
        self.refuses(layers.check, self.include("src/engine/a.cc", "../core/time.h"), "climbs")
        self.refuses(layers.check, self.include("src/newcomer/a.cc", "core/time.h"), "no row")

    def test_rooms_include_what_stands_below_them(self):
        above = {"src/engine/peer.h": '#include "engine/links/link.h"\n', "src/engine/all.h": '#include "engine/peer.h"\n',
                 "src/engine/plain.h": '#include "engine/also.h"\n', "src/engine/also.h": ""}
        self.accepts(layers.check, self.include("src/engine/links/a.cc", "engine/links/b.h"))
        self.accepts(layers.check, self.include("src/engine/links/a.cc", "engine/plain.h", **above))
        self.accepts(layers.check, self.include("src/engine/transfers/a.cc", "engine/links/link.h"))
        self.accepts(layers.check, self.include("src/collectives/gpu/a.cc", "collectives/gpu/device/b.h"))
        self.accepts(layers.check, self.include("src/engine/a.cc", "engine/all.h", **above))
        self.refuses(layers.check, self.include("src/engine/links/a.cc", "engine/transfers/b.h"), "src/engine/links may include of")
        self.refuses(layers.check, self.include("src/collectives/gpu/device/a.cc", "collectives/gpu/b.h"), "gpu/device may")
        self.refuses(layers.check, self.include("src/engine/links/a.cc", "engine/peer.h", **above), "stands below peer.h")
        self.refuses(layers.check, self.include("src/engine/links/a.cc", "engine/all.h", **above), "stands below all.h")
        self.refuses(layers.check, self.include("src/engine/attic/a.cc", "engine/links/b.h"), "has no room attic")
        gone = self.problems(layers.check, {"src/CMakeLists.txt": ""})
        self.assertEqual(len(gone), sum(map(len, layers.TO_BE_CUT.values())), gone)

    def test_users_see_public_headers_only(self):
        self.refuses(layers.check, self.include("tools/a.cc", "engine/worker.h"), "only fairway/")
        self.accepts(layers.check, self.include("tools/topo/files.cc", "topology/load.h"))
        self.refuses(layers.check, self.include("tools/topo/files.cc", "engine/worker.h"), "only fairway/")
        self.accepts(layers.check, self.include("tools/topo/files.cc", "a/b.h", **{"tools/a/b.h": ""}))
        self.accepts(layers.check, self.include("tools/bench/collectives/nccl.h", "collectives/nccl/library.h"))
        self.refuses(layers.check, self.include("tools/bench/collectives/gpu.h", "collectives/nccl/library.h"), "only fairway/")
        self.refuses(layers.check, self.include("bench/topo_files.cc", "topology/load.h"), "only fairway/")
        self.refuses(layers.check, self.include("bench/a.cc", "fairway/missing.h"), "no such public header")

    def test_public_headers_include_std_and_each_other(self):
        self.refuses(layers.check, {"include/fairway/a.h": "#include <fmt/core.h>\n"}, "standard library")
        self.refuses(layers.check, {"include/fairway/a.h": "#include <unistd.h>\n"}, "standard library")
        self.refuses(layers.check, {"include/fairway/a.h": '#include "core/time.h"\n'}, "standard library")
        self.accepts(layers.check, {"include/fairway/a.h": "#include <vector>\n"})
        in_c = {"include/fairway.h": "#include <stdint.h>\n"}
        self.accepts(layers.check, in_c | {"include/fairway_collectives.h": '#include "fairway.h"\n'})
        self.refuses(layers.check, in_c | {"include/fairway_collectives.h": "#include <string>\n"}, "standard library")
        self.refuses(layers.check, {"include/fairway/a.h": '#include "fairway.h"\n'}, "standard library")


class Purity(Checks):
    CASES = {
        "thread": "std::thread t;",
        "lock": "std::mutex m;",
        "wait": "std::this_thread::yield();",
        "clock": "auto t = std::chrono::steady_clock::now();",
        "chance": "std::random_device d;",
        "socket": "int fd = ::socket(AF_INET, SOCK_STREAM, 0);",
        "environment": 'auto* home = getenv("HOME");',
        "output": 'printf("hello");',
        "end": "std::abort();",
    }

    def test_every_rule_is_tried_here(self):
        self.assertEqual(set(self.CASES), set(purity.FORBIDDEN))

    def test_each_call_is_refused_outside_sys(self):
        for what, line in self.CASES.items():
            for folder in purity.FOLDERS:
                found = self.problems_in(f"{folder}/a.cc", line + "\n")
                self.assertTrue(any(f": {what}: " in problem for problem in found), (what, folder, found))

    def test_sys_may_and_words_in_comments_and_texts_do_not_count(self):
        self.assertEqual(self.problems_in("src/sys/a.cc", "std::thread t;\n"), [])
        self.assertEqual(self.problems_in("src/engine/a.cc", '// a std::mutex\nauto s = "std::thread";\n/* abort() */\n'), [])
        self.assertEqual(self.problems_in("src/engine/a.cc", "link.connect(peer); channel->send(x); snprintf(b, 1, f);\n"), [])

    def test_a_mutex_says_what_it_guards(self):
        self.assertEqual(self.problems_in("src/engine/a.h", "std::mutex mutex_;  // guards events_\n"), [])
        self.assertEqual(len(self.problems_in("src/engine/a.h", "std::mutex mutex_;  // a lock\n")), 1)
        self.assertEqual(len(self.problems_in("src/engine/a.h", "std::condition_variable c_;  // guards events_\n")), 1)

    def problems_in(self, path, text):
        return [p for p in self.problems(purity.check, {path: text}) if not p.startswith("tests/repository/purity.py")]

    def test_a_stale_exception_is_refused(self):
        saved, purity.ALLOWED = purity.ALLOWED, {("src/engine/gone.cc", "lock"): "why"}
        try:
            self.refuses(purity.check, {"src/engine/a.cc": ""}, "does not exist")
        finally:
            purity.ALLOWED = saved

    def test_an_exception_holds_for_its_file_and_rule_only(self):
        saved, purity.ALLOWED = purity.ALLOWED, {("src/engine/a.cc", "lock"): "why"}
        try:
            self.accepts(purity.check, {"src/engine/a.cc": "std::mutex m;\n"})
            found = self.problems(purity.check, {"src/engine/a.cc": "std::thread t;\n", "src/engine/b.cc": "std::mutex m;\n"})
            self.assertEqual(len(found), 2, found)
        finally:
            purity.ALLOWED = saved


class Sizes(Checks):
    def test_long_files_need_a_reason_and_longer_ones_are_refused(self):
        self.accepts(sizes.check, {"src/a.cc": "x\n" * 400})
        self.refuses(sizes.check, {"src/a.cc": "x\n" * 401}, "over 400")
        self.accepts(sizes.check, {"src/a.cc": "// size: one table, read as a whole\n" + "x\n" * 401})
        self.refuses(sizes.check, {"src/a.cc": "// size: a reason\n" + "x\n" * 600}, "over 600")

    def test_public_headers_are_short_together(self):
        self.accepts(sizes.check, {f"include/fairway/{i}.h": "x\n" * 400 for i in range(3)})
        self.accepts(sizes.check, {"include/fairway.h": "x\n" * 380})
        self.refuses(sizes.check, {"include/fairway.h": "x\n" * 400}, "at most 399")
        self.refuses(sizes.check, {"include/fairway_collectives.h": "x\n" * 261}, "at most 260")
        found = self.problems(sizes.check, {f"include/fairway/{i}.h": "x\n" * 400 for i in range(4)})
        self.assertEqual(len(found), 1, found)


class Mutants(Checks):
    LIST = (
        "from collections import namedtuple\n"
        "MUTANTS = [namedtuple('Mutant', 'name file old')('a bug', 'src/a.cc', 'x < y')]\n"
    )

    def test_one_that_fits_is_fine_and_one_that_does_not_is_refused(self):
        self.accepts(mutants.check, {mutants.LIST: self.LIST, "src/a.cc": "return x < y;\n"})
        self.refuses(mutants.check, {mutants.LIST: self.LIST, "src/a.cc": "return y > x;\n"}, "0 times")
        self.refuses(mutants.check, {mutants.LIST: self.LIST, "src/b.cc": "return x < y;\n"}, "0 times")


class Origins(Checks):
    def test_paths_of_one_machine_are_refused(self):
        for folder in ("home/someone", "root/x", "work/tree"):
            self.refuses(origins.check, {"a.md": f"see /{folder}/file\n"}, "a path of one machine")
            self.accepts(origins.check, {"a.md": f"see docs/{folder}, /sys/class and ~/{folder}\n"})

    def test_unlisted_addresses_are_refused(self):
        self.refuses(origins.check, {"scripts/setup": "fetch http:" + "//packages.mirror.test/debian\n"}, "does not list")
        self.accepts(origins.check, {"a.md": "http:" + "//www.apache.org/licenses/ and http:" + "//127.0.0.1:80/\n"})


class Spack(Checks):
    def recipe(self, argument, version="1.2.3"):
        text = (
            "from spack.package import *\n\nclass Fairway(CMakePackage):\n"
            f'    version("{version}")\n    variant("verbs", default=True)\n    depends_on("rdma-core", when="+verbs")\n'
            f"    def cmake_args(self):\n        return [{argument}]\n"
        )
        cmake = "project(fairway VERSION 1.2.3 LANGUAGES CXX)\nfairway_optional(VERBS found)\noption(FAIRWAY_FUZZ \"\" ON)\n"
        return {spack.RECIPE: text, "CMakeLists.txt": cmake}

    def test_options_variants_and_the_version_must_exist(self):
        fits = 'self.define_from_variant("FAIRWAY_WITH_VERBS", "verbs"), self.define("FAIRWAY_FUZZ", False)'
        self.accepts(spack.check, self.recipe(fits))
        self.refuses(spack.check, self.recipe(fits, "1.2.2"), "has no version 1.2.3")
        self.refuses(spack.check, self.recipe('self.define("FAIRWAY_FUZZY", True)'), "CMake has no FAIRWAY_FUZZY")
        self.refuses(spack.check, self.recipe('self.define_from_variant("FAIRWAY_FUZZ", "fuzz")'), "not declared")
        self.refuses(spack.check, self.recipe('self.spec["python"].command.path or "FAIRWAY_FUZZ"'), "does not depend")


class Documents(Checks):
    def test_links_must_resolve(self):
        self.refuses(documents.check, {"docs/a.md": "[b](b.md)\n"}, "does not exist")
        self.refuses(documents.check, {"docs/a.md": "[b](#nowhere)\n"}, "no such heading")
        self.accepts(documents.check, {"docs/a.md": "[b](../b.md#the-end)\n", "b.md": "# The end\n"})
        table = {"docs/nccl.md": "| `FAIRWAY_RDMA_CM`, `_MTU` | 0 |\n"}
        source = 'reader.text("FAIRWAY_RDMA_CM"); reader.text("FAIRWAY_RDMA_MTU");\n'
        self.accepts(documents.check, table | {"plugins/nccl_net/settings.cc": source})
        self.refuses(documents.check, table | {"plugins/nccl_net/settings.cc": source + '"FAIRWAY_B"'}, "no FAIRWAY_B")
        self.refuses(documents.check, table | {"plugins/nccl_net/settings.cc": '"FAIRWAY_RDMA_CM"'}, "not read")

    def test_the_tutorial_shows_what_its_programs_have(self):
        page = {"docs/tutorial/01-a.md": "```cpp\nf();\n\n  g();\n```\n"}
        self.accepts(documents.check, page | {"examples/01_a.cc": "int main() {\n  f();\n  g();\n}\n"})
        self.refuses(documents.check, page | {"examples/01_a.cc": "f();\nh();\ng();\n"}, "does not have: f();")
        self.refuses(documents.check, page | {"examples/01_a.cc": "f();\ng();\n" + "//\n" * 79}, "at most 80")
        self.refuses(documents.check, page, "has 0 programs")

    def test_the_changelog_has_the_version_that_is_built(self):
        files = {"CHANGELOG.md": "## [Unreleased]\n\n## [1.2.0] - 2026-01-01\n\n## [1.1.0]\n"}
        self.accepts(documents.check, files | {"CMakeLists.txt": "project(p VERSION 1.2.0 LANGUAGES CXX)\n"})
        self.refuses(documents.check, files | {"CMakeLists.txt": "project(p VERSION 1.1.0 LANGUAGES CXX)\n"}, "1.2.0")

    def test_each_label_of_tests_is_named(self):
        files = {
            "cmake/fairway_test.cmake": "set(FAIRWAY_TEST_LABELS unit net)\n",
            "CONTRIBUTING.md": "The labels are `unit`, `net` and\n`iwarp`. More.\n",
            "Makefile": "\t@echo '(unit net repository; iwarp: optional)'\n",
        }
        self.accepts(documents.check, files)
        for path in ("CONTRIBUTING.md", "Makefile"):
            self.refuses(documents.check, files | {path: files[path].replace("net", "")}, f"{path}: does not name the label net")

    def test_commands_of_the_readme_must_exist(self):
        block = "```sh\nmake fly\nscripts/gone\n```\n"
        found = self.problems(documents.check, {"README.md": block, "Makefile": "demo:\n\ttrue\n"})
        self.assertEqual(len(found), 2, found)
        self.refuses(documents.check, {"README.md": "| `python3 examples/gone.py --all`<br>`ls` |\n"}, "examples/gone.py")
        self.accepts(documents.check, {"README.md": "```sh\nmake demo\n```\n", "Makefile": "demo:\n\ttrue\n"})

    def test_translations_of_the_readme_keep_up(self):
        page = "[zh](README.zh-CN.md) [a](a.md) 1.5, 3 us `b`\n```sh\nls  # all\n```\n"
        theirs = "[en](README.md) 甲 [甲](a.md) 1.5，3 us `b`\n```sh\nls  # 全部\n```\n"
        files = {"a.md": "", "README.md": page, "README.zh-CN.md": theirs}
        self.accepts(documents.check, files)
        for word in ("1.5", "3 us", "`b`", "](a.md)"):
            self.refuses(documents.check, files | {"README.zh-CN.md": theirs.replace(word, "")}, "lacks")
        self.refuses(documents.check, files | {"README.zh-CN.md": theirs + "`c`\n"}, "has '`c`'")
        changed = self.problems(documents.check, files | {"README.zh-CN.md": theirs.replace("ls", "ls -l")})
        self.assertEqual(len(changed), 2, changed)


    def test_the_recipe_for_spack_keeps_up(self):
        files = {
            "CMakeLists.txt": "project(a VERSION 1.2.0)\noption(FAIRWAY_A)\nfairway_optional(B b)\n",
            "packaging/spack/packages/fairway/package.py": 'version("1.2.0") "FAIRWAY_A" "FAIRWAY_WITH_B"\n',
        }
        self.accepts(documents.check, files)
        for was, word, told in (("1.2.0", "1.3.0", "version 1.3.0"), ("WITH_B", "WITH_C", "no FAIRWAY_WITH_C")):
            wrong = files["packaging/spack/packages/fairway/package.py"].replace(was, word)
            self.refuses(documents.check, files | {"packaging/spack/packages/fairway/package.py": wrong}, told)

    def test_the_tutorial_is_alike_in_both_languages(self):
        here, there = "docs/tutorial/README.md", "docs/tutorial/zh-CN/README.md"
        files = {
            "docs/a.md": "# B\n",
            here: "[zh](zh-CN/README.md) [a](../a.md#b) takes 1.5 `b`\n```sh\nls\n```\n```text\none\n```\n",
            there: "[en](../README.md) [甲](../../a.md#b)用 1.5，`b`\n```sh\nls\n```\n```text\none\n```\n",
        }
        self.accepts(documents.check, files)
        for was, word, told in (
            ("one", "two", "its code"), ("1.5", "", "lacks 1.5"), ("`b`", "b", "lacks `b`"), ("[甲](../../a.md#b)", "", "lacks a link to a.md#b")
        ):
            self.refuses(documents.check, files | {there: files[there].replace(was, word)}, told)
        self.refuses(documents.check, files | {there: files[there] + "`c`\n"}, "has `c`")
        self.refuses(documents.check, files | {"docs/tutorial/more.md": "text\n"}, "both languages")


class Summary(Checks):
    CASE = '<testcase name="{}" status="{}">{}</testcase>'

    def summary(self, cases, failed_steps=""):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "dev.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
            if failed_steps:
                (root / "failed_steps").write_text(failed_steps)
            return load_summary().summarize(root)

    def test_counts_and_reasons(self):
        skip = "<skipped message='x'/><system-out>a.cc:4: Skipped\nno GPU\n[  SKIPPED ] A.C (0 ms)</system-out>"
        lines, good = self.summary(
            [self.CASE.format("A.B", "run", ""), self.CASE.format("A.C", "notrun", skip)]
        )
        self.assertTrue(good)
        self.assertEqual(lines[-1], "1 passed, 0 failed, 1 skipped")
        self.assertIn("skipped: no GPU (dev: A.C)", lines)

    def test_a_failed_case_or_step_or_an_empty_run_is_not_good(self):
        good_case, bad_case = self.CASE.format("A.B", "run", ""), self.CASE.format("A.C", "fail", "")
        for cases, steps, last in (
            ([good_case, bad_case], "dev-tests\n", "1 passed, 1 failed, 0 skipped"),
            ([good_case], "tsan-build\n", "1 passed, 1 failed, 0 skipped"),
            ([good_case], "dev-tests\n", "1 passed, 1 failed, 0 skipped"),
            ([], "", "0 passed, 0 failed, 0 skipped"),
        ):
            lines, good = self.summary(cases, steps)
            self.assertFalse(good)
            self.assertEqual(lines[-1], last)

    def test_of_a_race_the_report_is_shown_and_otherwise_the_end(self):
        many = [f"line {i}" for i in range(200)]
        race = "WARNING: ThreadSanitizer: data race"
        for output, first in ((many[:100] + [race] + many[100:], race), (many, "line 160")):
            case = self.CASE.format("A.C", "fail", "<system-out>" + "\n".join(output) + "</system-out>")
            lines, _ = self.summary([case])
            self.assertEqual(lines[lines.index("---- dev: A.C") + 1], first)

    def test_a_program_is_counted_by_its_cases(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for program, status in (("p", "run"), ("q", "fail"), ("r", "fail")):
                (root / "dev.xml").write_text(f"<testsuite>{self.CASE.format(program, status, '')}</testsuite>")
                (root / "dev").mkdir(exist_ok=True)
                cases = [self.CASE.format("A.B", "run", ""), self.CASE.format("A.C", "run" if program == "p" else "fail", "")]
                (root / "dev" / "p.xml").write_text(f"<s>{''.join(cases)}</s>")
                (root / "dev" / "q.xml").write_text(f"<s>{''.join(cases)}</s>")
                (root / "dev" / "r.xml").write_text(f"<s>{cases[0]}</s>")
                lines, good = load_summary().summarize(root)
                last = {"p": "2 passed, 0 failed, 0 skipped"}.get(program, "1 passed, 1 failed, 0 skipped")
                self.assertEqual((lines[-1], good), (last, program == "p"))
                self.assertIn("FAILED: dev: r" if program == "r" else "FAILED: dev: A.C" if program == "q" else last, lines)


class Setup(unittest.TestCase):
    """scripts/setup against a machine made of stubs: what dpkg-query says is there, and an apt-get that notes its calls."""

    TOOLS = ("bash", "cat", "dirname", "env", "grep", "mktemp", "rm", "sort", "tail")
    PACKAGES = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "packages.txt"

    def setup_on(self, *arguments, missing=(), stubs=("dpkg-query", "apt-get", "sudo"), apt_status=0):
        names = [line.split()[0] for line in self.PACKAGES.read_text().split("\n") if line and line[0] not in "#["]
        with tempfile.TemporaryDirectory() as folder:
            bin, calls = pathlib.Path(folder) / "bin", pathlib.Path(folder) / "calls"
            bin.mkdir()
            for tool in self.TOOLS:
                (bin / tool).symlink_to(shutil.which(tool))
            there = "".join(f"{name} installed\n" for name in names if name not in missing)
            text = {
                "dpkg-query": f"cat <<'END'\n{there}END\n",
                "apt-get": f'echo "$*" >>"{calls}"\nexit {apt_status}\n',
                "sudo": 'exec "$@"\n',
            }
            for stub in stubs:
                (bin / stub).write_text("#!/usr/bin/env bash\n" + text[stub])
                (bin / stub).chmod(0o755)
            run = subprocess.run([self.PACKAGES.parent / "setup", *arguments], env={"PATH": str(bin)}, capture_output=True, text=True)
            return run, calls.read_text() if calls.exists() else ""

    def test_a_complete_machine_is_left_alone(self):
        run, calls = self.setup_on()
        self.assertEqual((run.returncode, run.stdout, run.stderr, calls), (0, "", "", ""))

    def test_exactly_what_is_missing_is_named_and_installed(self):
        run, calls = self.setup_on(missing=("lld", "redis-server"))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(calls, r"(?s)^update .*\ninstall .* lld redis-server\n$")
        self.assertIn("redis-server", run.stdout)

    def test_for_users_nothing_of_the_tests_is_installed(self):
        run, calls = self.setup_on("users", missing=("libgtest-dev", "qemu-system-x86"))
        self.assertEqual((run.returncode, run.stdout, calls), (0, "", ""), run.stderr)
        _, calls = self.setup_on("users", missing=("libgtest-dev", "python3-numpy"))
        self.assertRegex(calls, r"(?s)^update .*\ninstall .*--no-install-recommends -o Dpkg::Use-Pty=0 python3-numpy\n$")

    def test_a_group_is_installed_when_it_is_asked_for(self):
        self.assertEqual(self.setup_on(missing=("lintian",))[1], "")
        _, calls = self.setup_on("packages", missing=("lintian", "lld", "libgtest-dev"))
        self.assertRegex(calls, r"(?s)^update .*\ninstall .*Use-Pty=0 lintian lld\n$")

    def test_a_word_that_it_does_not_know_is_refused(self):
        run, calls = self.setup_on("user", missing=("lld",))
        self.assertEqual((run.returncode, run.stderr, calls), (2, "setup: takes nothing, or one of users, packages, reference, aarch64\n", ""))

    def test_a_failing_apt_is_an_error(self):
        run, _ = self.setup_on(missing=("lld",), apt_status=100)
        self.assertEqual(run.returncode, 100)
        self.assertIn("apt-get update failed with status 100", run.stderr)

    def test_a_system_without_apt_is_told_what_to_install(self):
        run, _ = self.setup_on(stubs=())
        self.assertEqual(run.returncode, 1)
        self.assertIn("libssl-dev", run.stderr)


class Tree(unittest.TestCase):
    def test_code_lines_keeps_numbers_and_drops_comments_and_texts(self):
        text = 'a; // b\n/* c\nd */ e("f // g");\nR"(h\ni)"; j\n'
        self.assertEqual([line.strip() for _, line in tree.code_lines(text)], ["a;", "", 'e("");', "", "; j", ""])


if __name__ == "__main__":
    unittest.main()
