"""Deliberate bugs: each breaks one promise in the way a tired engineer might. A mutant is a file, the text that is there,
the text that replaces it, and what is most likely to see it, which is run first. Left out is what only a transport that
breaks its contract would show, such as an event that comes after its link was fenced."""

import mutants_collectives
import mutants_engine
import mutants_others
import mutants_transport
from mutant import Mutant  # noqa: F401: a list of bugs that are on trial (run --from) names it

# The programs that must see a bug in a folder, quick ones first; `seeds` runs the simulator, where waiting costs no time.
ENGINE = ("seeds", "engine_test", "promises_test", "promises_bounded_test")
TESTS = {
    "src/core": ("core_test", *ENGINE),
    "src/engine": ENGINE,
    "src/control": ("unit_control", "seeds", "promises_test"),
    "src/transport": ("unit_transport", "seeds", "engine_test", "unit_verbs_test", "promises_test"),
    "src/transport/loopback": ("unit_loopback_test", "seeds", "engine_test", "conformance_test@*loopback*", "promises_test"),
    "src/transport/tcp": ("tcp_test", "conformance_test@*tcp*:-*fabric*", "process_engine@*tcp*:-*fabric*"),
    "src/transport/host": ("conformance_test@*shm*:-*fabric*", "process_shm", "process_engine@*shm*:-*fabric*"),
    "src/sys": ("unit_sys", "engine_test"),
    "src/transport/cuda": ("unit_cuda", "process_cuda"),
    "src/collectives": ("unit_collectives", "process_collectives", "process_gpu_collectives"),
    "src/transport/verbs": ("unit_verbs_test", "unit_transport", "conformance_test@*verbs_gpus*"),
    "src/transport/fabric": ("unit_fabric", "conformance_test@*fabric*"),
    "src/render": ("render_test", "tool_test"),
    "src/sim": ("unit_sim_test", "fault_sim_test"),
    "tools": ("tool_test", "process_tool"),
}

MUTANTS = mutants_engine.MUTANTS + mutants_transport.MUTANTS + mutants_collectives.MUTANTS + mutants_others.MUTANTS
