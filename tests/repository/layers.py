"""Who may include whom: each folder's allowed others, by the order that docs/ARCHITECTURE.md draws."""

import pathlib
import re

import tree

# A folder of src/ may include its own headers, the public ones and those of the folders listed here.
ALLOWED = {
    "src/core": [],
    "src/sys": ["core"],
    "src/topology": ["core", "sys"],
    "src/predict": ["core", "sys", "topology"],
    "src/render": ["core", "sys", "topology"],
    # What is wrong with a machine: above what it is and what it should reach; no part of the library.
    "src/doctor": ["core", "sys", "topology", "predict", "render"],
    "src/control": ["core", "sys"],
    "src/transport": ["core", "sys"],
    "src/transport/*": ["core", "sys", "transport"],
    # The transport between processes of one host, with a GPU's driver.
    "src/transport/cuda": ["core", "sys", "transport", "transport/host"],
    "src/engine": ["core", "sys", "topology", "predict", "control", "transport"],
    # The simulated network is one more wire under loopback, the executable specification of the contract.
    # Of the collectives: their clock, which it makes virtual, and the names of their algorithms.
    "src/sim": ["core", "sys", "topology", "predict", "control", "transport", "transport/loopback", "engine", "collectives"],
    # Users of the library: the public headers and their own.
    "src/c": [],
    # Whose counters are whose, which an engine keeps; the driver's table: GPU memory of its own, and its kernels.
    "src/collectives": ["core", "sys"],
    "src/moe": [],
    "src/kv": [],
    "plugins/*": [],
    # What describes machines, diagnoses and simulates them, beside the public headers; never the engine, control or a
    # transport. The plugin's declarations of NCCL's tables: `fairway nccl` loads it as NCCL does.
    "tools": ["core", "sys", "topology", "predict", "render", "sim", "doctor", "nccl_net"],
    # NCCL's functions, as the collectives find and call them: it measures both.
    "tools/bench/collectives/nccl": ["sys", "collectives"],
    # What the library keeps to itself: how much memory there is, and the driver's table, for events of streams.
    "python": ["sys"],
    "bench": [],
    # Ten thousand sessions in one process: workers without an engine around them.
    "bench/many_peers": ["core", "sys", "control", "transport", "engine"],
    "examples": [],
    # A transport of somebody else's: it sees the contract.
    "examples/mailbox": ["core", "transport"],
}

# The rooms of a folder, bottom up. A room includes what stands in the folder itself, and of the rooms those before it; a
# header of the folder that includes a room, itself or by others, stands above them all, and no room includes it.
ROOMS = {
    "src/collectives": ["host", "gpu/device", "gpu", "nccl", "job"],
    "src/engine": ["tables", "links", "messages", "staging", "transfers"],
}

# To be cut: what rooms include all the same, and so are in a circle. None is added; one that is gone is taken out here.
TO_BE_CUT = {
    "src/collectives/host": ["state.h"],
    "src/collectives/gpu": ["state.h", "job/progress.h", "nccl/calls.h"],
    "src/collectives/job": ["state.h"],
}

# The one file that names the concrete transports.
REGISTRY = "src/transport/registry.cc"

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
STANDARD = re.compile(r"^[a-z_0-9]+$")
C_HEADERS = ("fairway.h", "fairway_collectives.h")
OF_C = ("stddef.h", "stdint.h")  # what they, which C reads too, stand on


def home(path):
    """The row of ALLOWED that a file falls under, and the file's own folder."""
    parts = path.parts
    if parts[:2] == ("src", "transport") and len(parts) > 3:
        own = "/".join(parts[:3])
        return own if own in ALLOWED else "src/transport/*", "/".join(parts[1:3])
    if parts[0] == "src":
        return "/".join(parts[:2]), parts[1]
    if parts[0] == "plugins":
        return "plugins/*", parts[1]
    words = path.stem.split("_")
    stems = [f"{path.parent}/{'_'.join(words[:count])}" for count in range(len(words), 0, -1)]
    folders = [folder.as_posix() for folder in path.parents]
    return next((place for place in stems + folders if place in ALLOWED), parts[0]), None


def folder_of(include):
    """The folder of src/ that an include names: `transport/tcp/lane.h` is of transport/tcp, `core/time.h` of core."""
    parts = include.split("/")
    return "/".join(parts[:2]) if parts[0] == "transport" and len(parts) > 2 else parts[0]


def includes(root, path):
    """The headers between quotes that a file includes, each with its line."""
    for number, line in enumerate((root / path).read_text().split("\n"), 1):
        found = INCLUDE.match(line)
        if found and found.group(1) == '"':
            yield number, found.group(2)


def stands_above(root, folder, header, seen=()):
    """Whether a header of the folder itself includes a room of it."""
    own, name = pathlib.Path(folder), folder.removeprefix("src/") + "/"
    if header in seen or not (root / own / header).exists():
        return False
    inside = [each.removeprefix(name) for _, each in includes(root, own / header) if each.startswith(name)]
    return any("/" in each or stands_above(root, folder, each, (*seen, header)) for each in inside)


def why_not_from_room(root, path, include):
    """Why a file of a room may not include that of its own folder, or None."""
    folder = "/".join(path.parts[:2])
    room = path.parent.relative_to(folder).as_posix()
    header = include.split("/", 1)[1]
    target = header.rpartition("/")[0]
    if room == "." or room == target:
        return None
    rooms = ROOMS[folder]
    if room not in rooms:
        return f"{folder} has no room {room} in tests/repository/layers.py"
    if header in TO_BE_CUT.get(f"{folder}/{room}", ()):
        return None
    if target and target not in rooms[: rooms.index(room)]:
        return f"{folder}/{room} may include of {folder} only {', '.join(['what stands in it'] + rooms[: rooms.index(room)])}"
    if not target and stands_above(root, folder, header):
        return f"{folder}/{room} stands below {header}, which includes rooms"
    return None


def cut(root):
    """What TO_BE_CUT names although nobody includes it any more."""
    for room, headers in TO_BE_CUT.items():
        folder = room.split("/")[1]
        used = {each for path in tree.files(root, ".h", ".cc", ".cu", ".cuh", under=room) if path.parent.as_posix() == room
                for _, each in includes(root, path)}
        for header in headers:
            if f"{folder}/{header}" not in used:
                yield f"tests/repository/layers.py: TO_BE_CUT: no file of {room} includes {header}: take it out"


def why_not(root, path, include):
    """Why path may not include that, or None."""
    row, own = home(path)
    if include.startswith("fairway/") or include in C_HEADERS:
        return None if (root / "include" / include).exists() else "no such public header"
    if ".." in include.split("/"):
        return "climbs out of its folder"
    if row not in ALLOWED:
        return f"{row} has no row in tests/repository/layers.py"
    target = folder_of(include)
    if target in (own, *ALLOWED[row]):
        return why_not_from_room(root, path, include) if row in ROOMS and target == own else None
    if own is None or "/" not in include:
        more = f" and {', '.join(ALLOWED[row])}" if ALLOWED[row] else ""
        # What projects of examples share is in a folder `common`; what commands of the tool share is in `tools` itself.
        beside = (path.parent, path.parent.parent / "common", pathlib.Path(path.parts[0]))
        return None if any((root / place / include).exists() for place in beside) else f"{row} sees only fairway/{more}"
    if path.as_posix() == REGISTRY and target.startswith("transport/"):
        return None
    return f"{row} may include only {', '.join([own] + ALLOWED[row])}"


def check(root):
    for folder in ("src", "plugins", "tools", "python", "bench", "examples"):
        for path in tree.files(root, ".h", ".cc", ".cu", ".cuh", under=folder):
            for number, header in includes(root, path):
                if reason := why_not(root, path, header):
                    yield f'{path}:{number}: "{header}": {reason}'
    if (root / "src/CMakeLists.txt").exists():
        yield from cut(root)
    for path in tree.files(root, ".h", under="include"):
        for number, line in enumerate((root / path).read_text().split("\n"), 1):
            found = INCLUDE.match(line)
            quote, name = found.groups() if found else ("<", "standard")
            of_c = len(path.parts) == 2 and path.name in C_HEADERS
            standard = not found or (name in OF_C if of_c else STANDARD.match(name))
            if not ((name in C_HEADERS if of_c else name.startswith("fairway/")) if quote == '"' else standard):
                yield f"{path}:{number}: public headers include only the standard library and fairway/, not {name}"


if __name__ == "__main__":
    tree.main(check)
