"""Promise 11, tells: the library neither prints nor ends the process. Checks the undefined symbols of libfairway.so."""

import re
import subprocess
import sys

FORBIDDEN = [
    r"(v?f?printf|v?dprintf|puts|fputs|putchar|fputc|putc|fwrite|perror|v?syslog|psignal)(_unlocked)?",
    r"__(v?f?printf)_chk",
    r"abort|exit|_exit|_Exit|quick_exit|raise|kill|system|longjmp|signal|sigaction",
    r"std::(cout|cerr|clog|wcout|wcerr)",
    r"std::(exit|abort|_Exit|quick_exit)",
    r"fmt::v\d+::(v?print|println).*",
    r"std::__throw_\w+_and_print",
]
# Allowed: __assert_fail, from the assertions in nlohmann-json's headers, which a build with NDEBUG does not have.
# Allowed: std::terminate, which the language calls when an exception leaves a noexcept function.
FORBIDDEN_NAMES = re.compile("|".join(f"(?:{pattern})" for pattern in FORBIDDEN))


def forbidden(names):
    return [name for name in names if FORBIDDEN_NAMES.fullmatch(re.sub(r"\(.*|@.*", "", name))]


def main(library):
    # Check the check: it must find what is forbidden.
    assert forbidden(["printf@GLIBC_2.2.5", "std::cout", "abort", "fmt::v9::vprint(int)"]) and not forbidden(["snprintf"])
    listing = subprocess.run(["nm", "-D", "-C", "--undefined-only", library], capture_output=True, text=True, check=True)
    names = [line.split(maxsplit=1)[1] for line in listing.stdout.splitlines() if line.strip()]
    if len(names) < 20:
        sys.exit(f"nm lists {len(names)} undefined symbols of {library}: this is not the library")
    found = forbidden(names)
    for name in found:
        print(f"{library} uses {name}: the library must neither print nor end the process")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
