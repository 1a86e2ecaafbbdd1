"""Deliberate bugs of ends: who is at fault when a peer is lost, parts of a frame, counters near their wrap. See mutants.py."""

from mutant import Mutant

MUTANTS = [
    # Parts of a frame that a socket takes.
    Mutant("a frame is out one byte early", "src/transport/tcp/lane_send.cc",
           "position_ >= std::uint64_t{first.before} + first.bytes)",
           "position_ + 1 >= std::uint64_t{first.before} + first.bytes)", "tcp_test@TcpLane.AnAnswer*"),
    Mutant("what a socket took in part is sent once more", "src/transport/tcp/lane_send.cc",
           "    sent(*taken);\n    if (*taken < offered) break;", "    if (*taken < offered) break;\n    sent(*taken);",
           "tcp_test@TcpLane.TheStream*"),

    # Counters near their wrap.
    Mutant("a record that came twice is a violation where its number wrapped around", "src/engine/messages/record.cc",
           "return expected_ - sequence <= kReorderWindow ?", "return sequence < expected_ && expected_ - sequence <= kReorderWindow ?",
           "engine_test@RecordStream.TheReceiver*"),
    Mutant("a receive that was told last is not known where its number wrapped around", "src/engine/messages/told_receives.cc",
           "static_cast<std::int32_t>(each.number - last->number) > 0", "each.number > last->number", "engine_test@Told*"),
    Mutant("a ring is full where its positions wrap around", "src/transport/host/ring.cc",
           "next_ - freed_ <= kCells - cells", "next_ <= freed_ + kCells - cells", "unit_host@Ring.EachRecord*"),

    # Alarms: who is at fault when a peer is lost.
    Mutant("a lost peer is blamed though this rank may be the one that is cut off", "src/collectives/operations.cc",
           "fault.rank != rank()) return begin_doubt(running, fault);", "fault.rank != rank()) (void)running;",
           "fault_sim_group_test@SimulatedCut.*"),
    Mutant("who hears nobody blames the first that it has lost", "src/collectives/host/blame.cc",
           "    if (!alone) return", "    if (false) return", "unit_collectives@BlameLost.*"),
    Mutant("who is told that a peer has lost it does not wait for what the others say", "src/collectives/host/blame.cc",
           "(!lost_us && of(Hearing::answers) != 0)", "(lost_us || of(Hearing::answers) != 0)", "unit_collectives@BlameLost.*"),
    Mutant("of ranks of which none answers the first is blamed", "src/collectives/host/blame.cc",
           "those.size() + 1 == ranks.size()", "those.size() > ranks.size()", "unit_collectives@Blame.*"),

    # Clocks that drift apart.
    Mutant("a simulated host's timers go by another clock than its own", "src/sim/host.cc",
           "  if (drift_ == 0) return since;\n", "  return since;\n", "unit_sim_test@Simulation.Clocks*"),
]
