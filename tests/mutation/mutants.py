"""Deliberate bugs: each breaks one promise in the way a tired engineer might. A mutant is a file, the text that is there,
the text that replaces it, and the tests that are most likely to see it, which are run first. Left out is what only a
transport that breaks its contract would show, such as an event that comes after its link was fenced."""

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    first: str = ""  # a GoogleTest filter of `promises`


LINKS = "src/engine/peer_links.cc"
TRANSFERS = "src/engine/peer_transfers.cc"
REQUESTS = "src/engine/peer_requests.cc"
COMPLETION = "src/engine/peer_completion.cc"
PROOF = "src/engine/peer_proof.cc"
SERVE = "src/engine/peer_serve.cc"
EVENTS = "src/engine/peer_events.cc"
REGIONS = "src/engine/worker_regions.cc"

MUTANTS = [
    Mutant("a link is not fenced before its slices move", LINKS,
           "  worker_.transport_at(link.transport).fence(link.id);\n}\n\nvoid Peer::on_fenced",
           "  transport::Event fenced;\n  on_fenced(index, fenced);\n}\n\nvoid Peer::on_fenced", "Survives.*"),
    Mutant("a write moves before the far end of its link is closed", LINKS,
           "if (!both && entry.op != transport::Op::read) continue;", "", "Survives.*:Visible.*"),
    Mutant("the immediates that arrived are forgotten on failover", LINKS,
           "entry.immediate < link.immediates_there", "false", "Visible.Counters*"),
    Mutant("a proof is not compared", PROOF,
           "if (!std::equal(link.proof_sent.begin(), link.proof_sent.end(), read))", "if (false && read != nullptr)",
           "Checks.*"),
    Mutant("a credit is lost", EVENTS,
           "  credits_returned_ = total;\n  send_credit();", "  credits_returned_ = total;"),
    Mutant("a notification that was sent gives its credit back as well", COMPLETION,
           "if (t.credit_taken && t.notify_record == kNoSlot && !t.armed && !t.immediate_sent) --events_sent_;",
           "if (t.credit_taken) --events_sent_;"),
    Mutant("an event in doubt keeps its credit for ever", EVENTS,
           "if (number >= link.immediates_there) --events_sent_;", "(void)number;", "*EventsOfBothKinds.*"),
    Mutant("an event is not waited for where its immediate was lost", EVENTS,
           "if (t.immediate_sent) return finish(slot, {});", "return finish(slot, {});", "EventsRide.*"),
    Mutant("an event whose write failed waits for ever", COMPLETION,
           "if (!ok) give_up(t);", "(void)ok;", "EventsRide.*"),
    Mutant("a stripe leaves out a byte", "src/engine/stripe.cc",
           "cursor.offset += piece.length;", "cursor.offset += piece.length + 1;", "Survives.*"),
    Mutant("a transfer completes twice", "src/engine/worker_transfers.cc",
           "  finished_.push_back(slot);",
           "  finished_.push_back(slot);\n  if (!services_.transfers[slot].completion.status) finished_.push_back(slot);",
           "ExactlyOnce.*"),
    Mutant("a transfer that failed completes while its slices are in flight", COMPLETION,
           "  if (--t.pieces_out == 0) drained(slot);\n}", "  t.pieces_out = 0;\n  drained(slot);\n}", "Revocable.*"),
    Mutant("a notification comes before the last bytes", COMPLETION,
           "  if (t.pieces_out > 0) return;\n  if (t.phase == Phase::draining) return drained(entry.owner);",
           "  if (t.pieces_out > 1) return;\n  if (t.phase == Phase::draining) return drained(entry.owner);", "Visible.*"),
    Mutant("a counter that rode on its write is sent again", COMPLETION,
           "      if (t.immediate_sent) return finish(slot, {});\n", "", "Visible.*"),
    Mutant("a write that needs a flush gets none", COMPLETION,
           "if (t.phase == Phase::moving && t.needs_flush)", "if (false)", "Visible.*"),
    Mutant("a failed transfer says that no more will show while it may", COMPLETION, "  t.in_doubt |= t.needs_flush;\n", ""),
    Mutant("the proof looks before it is visible", PROOF,
           "  (void)worker_.transport_at(link.transport).flush(worker_.local_handle(scratch.region, link.transport));\n",
           ""),
    Mutant("after is ignored", TRANSFERS,
           "if (first && worker_.wait_for(first, slot, first_failed))", "if (false && worker_.wait_for(first, slot, first_failed))",
           "NoOrder.*"),
    Mutant("what follows a failure is started", TRANSFERS,
           "  if (!ok) return fail(slot, {ErrorCode::dependency_failed, \"the transfer named in `after` failed\"});\n", "",
           "NoOrder.*"),
    Mutant("every failure says that nothing was applied", COMPLETION,
           "const Effect effect = t.in_doubt ? Effect::unknown : t.bytes_posted == 0 ? Effect::not_applied : Effect::partial;",
           "const Effect effect = Effect::not_applied;", "Survives.*"),
    Mutant("the end of a region is not checked", "src/transport/region_table.cc",
           "if (offset > region.size_bytes || length > region.size_bytes - offset)", "if (offset > region.size_bytes)",
           "InBounds.*"),
    Mutant("a region's permission is not checked", "src/transport/region_table.cc",
           "if (!includes(region.access, needed)) return ErrorCode::access_denied;", "(void)needed;", "InBounds.*"),
    Mutant("a record that came twice is served twice", "src/engine/record.cc",
           "  if (received_[sequence % received_.size()]) return Verdict::duplicate;\n", ""),
    Mutant("a record from behind the window is served", "src/engine/record.cc",
           "<= kReorderWindow ? Verdict::duplicate : Verdict::violation", "<= kReorderWindow ? Verdict::take : Verdict::violation"),
    Mutant("deregister does not wait for the peers", REGIONS,
           "if (removal.transports_left > 0 || !removal.peers_left.empty())", "if (removal.transports_left > 0)",
           "Revocable.*"),
    Mutant("a late reply is taken for another request's", REQUESTS,
           " || entry.serial != serial)", ")", "InBounds.*"),
    Mutant("a checksum is not compared", "src/engine/peer_errands.cc",
           "if (ours != theirs)", "if (false && ours != theirs)", "Checks.*"),
    Mutant("a notification without a credit is taken", EVENTS,
           "if (notifications_delivered_ + events_given_up_ + armed_.waiting() - credits_returned_ >= granted_credits_) {",
           "if (false) {", "InBounds.*"),
    Mutant("sends are matched as they come, not in their order", "src/engine/peer_messages.cc",
           "  out_of_order_.emplace(sequence, std::move(message));",
           "  message.tag = message.tag;\n  out_of_order_.emplace(expected_send_, std::move(message));", "Survives.Messages*"),
]
