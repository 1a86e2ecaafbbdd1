"""Nothing in the tree names the machine it was made on or where packages come from: no absolute path of a person's or a
build machine's folder, no address but those that readers are sent to on purpose."""

import re

import tree

FOLDER = re.compile(r"(?<![\w./~-])/(?:home|root|Users|work|workspace|scratch|srv|mnt)/[\w.]+")
ADDRESS = re.compile(r"\b(?:https?|ftp|git|ssh)://([\w.-]+)")

# Hosts that the tree may name: licences, standards and documentation for readers, and names that can never resolve.
HOSTS = re.compile(
    r"(^|\.)(apache\.org|json-schema\.org|keepachangelog\.com|semver\.org|github\.com|kernel\.org|ietf\.org|rfc-editor\.org|w3\.org"
    r"|nvidia\.com|cppreference\.com|open-mpi\.org|libfabric\.org|example|invalid|localhost)$"
)
SKIPPED = {".png", ".svg", ".bin"}


def check(root):
    for path in tree.files(root):
        if path.suffix in SKIPPED or "corpus" in path.parts:
            continue
        try:
            text = (root / path).read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            for found in FOLDER.findall(line):
                yield f"{path}:{number}: a path of one machine: {found}"
            for host in ADDRESS.findall(line):
                if not HOSTS.search(host) and not re.fullmatch(r"[\d.]+", host):
                    yield f"{path}:{number}: an address that tests/repository/origins.py does not list: {host}"


if __name__ == "__main__":
    tree.main(check)
