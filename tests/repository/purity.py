"""Threads, time, chance and the operating system come in through core's interfaces and are implemented in src/sys. Here
is what no other folder may name, and the few files that may, each with its reason."""

import re

import tree

# Where the rule holds; src/sys implements the interfaces, src/topology reads the machine and may call it.
FOLDERS = ("src/core", "src/control", "src/transport", "src/engine", "src/sim")

FORBIDDEN = {
    "thread": r"\bstd::(jthread|thread|async)\b(?!::id)|\bpthread_create\b",
    "lock": r"\bstd::(\w*mutex|condition_variable\w*)\b|\bpthread_mutex\w*",
    "wait": r"\bstd::this_thread::(yield|sleep)|\bsleep_(for|until)\b|\b(u|nano)?sleep\s*\(|\bepoll_wait\b|\bfutex\b"
    r"|\bstd::(future|promise|counting_semaphore|binary_semaphore|latch|barrier)\b",
    "clock": r"\b(steady|system|high_resolution)_clock\b|\bclock_gettime\b|\bgettimeofday\b"
    r"|(?<![\w.:>])time\s*\(\s*(NULL|nullptr|0)\s*\)",
    "chance": r"\bstd::(random_device|mt19937\w*|default_random_engine)\b|(?<![\w.:>])s?rand\s*\(|\bgetrandom\b",
    "socket": r"(?<![\w.>])(::)(socket|bind|listen|accept4?|connect|send|recv|sendmsg|recvmsg|setsockopt)\s*\("
    r"|#\s*include\s*<(sys/socket|netinet/\w+|arpa/inet|netdb|sys/epoll|sys/un|poll)\.h>",
    "environment": r"\bgetenv\b|\bsecure_getenv\b|\bstd::system\b",
    "output": r"\bstd::(cout|cerr|clog)\b|\bfmt::print\b|(?<![\w.:>])(std::)?(printf|puts|fprintf|perror)\s*\(",
    "end": r"\b(std::)?(abort|_Exit|quick_exit|terminate)\s*\(\s*\)|(?<![\w.:>])(std::)?exit\s*\(",
}

# A mutex held for a few lines never waits in the single-threaded simulator. Its declaration says what it guards.
GUARD = re.compile(r"\bstd::mutex \w+;\s+// guards \w")

# (file or folder ending in /, what) -> why it may. A data path that calls the system itself goes here.
ALLOWED = {
    ("src/transport/verbs/abi.h", "lock"): "libibverbs' own structures have them; declared for their size, never used",
}


def allowed(path, what):
    text = path.as_posix()
    return any(rule == what and (text == place or place.endswith("/") and text.startswith(place)) for place, rule in ALLOWED)


def check(root, folders=FOLDERS):
    patterns = {what: re.compile(pattern) for what, pattern in FORBIDDEN.items()}
    for folder in folders:
        for path in tree.files(root, ".h", ".cc", under=folder):
            text = (root / path).read_text()
            raw = text.split("\n")
            for number, line in tree.code_lines(text):
                for what, pattern in patterns.items():
                    found = pattern.search(line)
                    if not found or allowed(path, what) or (what == "lock" and GUARD.search(raw[number - 1])):
                        continue
                    advice = "say `// guards <what>` beside it" if what == "lock" else "it belongs in src/sys"
                    yield f"{path}:{number}: {what}: `{found.group().strip()}`: {advice} (tests/repository/purity.py)"
    for place, _ in ALLOWED:
        if not (root / place).exists() and root.joinpath("src").exists():
            yield f"tests/repository/purity.py: allows {place}, which does not exist"


if __name__ == "__main__":
    tree.main(check)
