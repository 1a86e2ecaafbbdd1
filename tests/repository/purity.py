"""Threads, time, chance and the operating system come in through core's interfaces and are implemented in src/sys. Here
is what no other folder may name, and the few files that may, each with its reason."""

import re

import tree

# Where the rule holds; src/sys implements the interfaces, src/topology reads the machine and may call it.
FOLDERS = ("src/core", "src/control", "src/transport", "src/engine", "src/sim")

FORBIDDEN = {
    "thread": r"\bstd::(jthread|thread|async)\b(?!::id)|\bpthread_create\b",
    # A lock that is held for a few lines never waits in the single-threaded simulator; still, each one needs its reason.
    "lock": r"\bstd::(\w*mutex|condition_variable\w*)\b|\bpthread_mutex\w*",
    "wait": r"\bstd::this_thread::(yield|sleep)|\bsleep_(for|until)\b|\b(u|nano)?sleep\s*\(|\bepoll_wait\b|\bfutex\b"
    r"|\bstd::(future|promise|counting_semaphore|binary_semaphore|latch|barrier)\b",
    "clock": r"\b(steady|system|high_resolution)_clock\b|\bclock_gettime\b|\bgettimeofday\b|(?<![\w.:>])time\s*\(\s*(NULL|nullptr|0)\s*\)",
    "chance": r"\bstd::(random_device|mt19937\w*|default_random_engine)\b|(?<![\w.:>])s?rand\s*\(|\bgetrandom\b",
    "socket": r"(?<![\w.>])(::)(socket|bind|listen|accept4?|connect|send|recv|sendmsg|recvmsg|setsockopt)\s*\("
    r"|#\s*include\s*<(sys/socket|netinet/\w+|arpa/inet|netdb|sys/epoll|sys/un|poll)\.h>",
    "environment": r"\bgetenv\b|\bsecure_getenv\b|\bstd::system\b",
    "output": r"\bstd::(cout|cerr|clog)\b|\bfmt::print\b|(?<![\w.:>])(std::)?(printf|puts|fprintf|perror)\s*\(",
    "end": r"\b(std::)?(abort|_Exit|quick_exit|terminate)\s*\(\s*\)|(?<![\w.:>])(std::)?exit\s*\(",
}

# (file or folder ending in /, what) -> why it may.
ALLOWED = {
    ("src/transport/region_table.h", "lock"): "registering and revoking, on any thread; resolving never locks",
    ("src/transport/loopback/direct_wire.h", "lock"): "guards the table of offered pipes, used when connecting",
    ("src/transport/loopback/doorbell.h", "lock"): "held to wake a sleeper, so that closing can end all wake-ups",
}


def allowed(path, what):
    text = path.as_posix()
    return any(rule == what and (text == place or place.endswith("/") and text.startswith(place)) for place, rule in ALLOWED)


def check(root, folders=FOLDERS):
    patterns = {what: re.compile(pattern) for what, pattern in FORBIDDEN.items()}
    for folder in folders:
        for path in tree.files(root, ".h", ".cc", under=folder):
            for number, line in tree.code_lines((root / path).read_text()):
                for what, pattern in patterns.items():
                    found = pattern.search(line)
                    if found and not allowed(path, what):
                        yield f"{path}:{number}: {what}: `{found.group().strip()}` belongs in src/sys, or needs a reason in tests/repository/purity.py"
    for place, _ in ALLOWED:
        if not (root / place).exists() and root.joinpath("src").exists():
            yield f"tests/repository/purity.py: allows {place}, which does not exist"


if __name__ == "__main__":
    tree.main(check)
