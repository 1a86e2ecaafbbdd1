"""Deliberate bugs: each breaks one promise in the way a tired engineer might. A mutant is a file, the text that is there,
the text that replaces it, and what is most likely to see it, which is run first. Left out is what only a transport that
breaks its contract would show, such as an event that comes after its link was fenced."""

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    first: str = ""  # a GoogleTest filter of promises_test, or another program@filter, or seeds@count


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
    "src/transport/verbs": ("unit_verbs_test", "unit_transport", "conformance_test@*nic*"),
    "src/transport/fabric": ("unit_fabric", "conformance_test@*fabric*"),
}


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
           "  if (!down_) send(record::Credit{credits_returned_});\n", ""),
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
           "    case NotifyKind::counter:\n      if (t.immediate_sent) return finish(slot, {});\n", "    case NotifyKind::counter:\n", "Visible.*"),
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
           "if (removal.transports_left != 0 || !removal.peers_left.empty())", "if (removal.transports_left != 0)",
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
    # Unit and promise tests saw these, while the simulator passed 20,000 seeds of each. It must see them by itself.
    Mutant("cancel says fenced after a thousandth of its time, with pieces still out", "src/engine/engine_transfers.cc",
           "  if (wait_for(half)) return ticket->result;\n",
           "  if (wait_for(now + (until - std::min(now, until)) / 1000)) return ticket->result;\n"
           "  if (half != 0) return Cancelled{true, {}, Cancelled::Far::unknown};\n", "seeds@5000"),
    Mutant("deregister says fenced when its time is over", "src/engine/engine_memory.cc",
           "    return Status(ErrorCode::not_fenced, \"the region may still be touched",
           "    if (!holders.empty() || true) return Status();\n"
           "    return Status(ErrorCode::not_fenced, \"the region may still be touched", "seeds@5000"),
    Mutant("some values are counted twice", "src/engine/notify.cc",
           "slot->count.fetch_add(count, std::memory_order_release);",
           "slot->count.fetch_add(immediate > 0xffff ? 2 * count : count, std::memory_order_release);", "seeds@3000"),
    Mutant("a checksum leaves the last byte out", "src/core/crc32c.cc",
           "return ~method().update(~seed, bytes.data(), bytes.size());",
           "return ~method().update(~seed, bytes.data(), bytes.size() - (bytes.size() > 64));", "seeds@3000"),
    Mutant("a sender asks nobody for room for unexpected messages", "src/engine/peer_messages.cc",
           "    if (unexpected_cost_there_ + cost > unexpected_room_there_) break;\n", "", "seeds@3000"),
    Mutant("nobody counts unexpected messages", "src/engine/peer_messages.cc",
           "  return kAnnouncementCost + (eager ? static_cast<std::uint32_t>(length) : 0);",
           "  return eager && length > 0 ? 0 : kAnnouncementCost;", "seeds@3000"),
    Mutant("a frozen peer is noticed after three times the bound", "src/control/keepalive.h",
           "return after(last_heard_, timeout_);", "return after(last_heard_, 3 * timeout_);", "seeds@3000"),
    Mutant("a write that notifies goes without its checksum", COMPLETION,
           "if (t.request.options.checksum && t.checked.block < t.blocks",
           "if (t.request.options.checksum && t.request.options.notify.kind == NotifyKind::none && t.checked.block < t.blocks",
           "seeds@3000"),
    # Found by planting some two hundred more: these passed most tests, or all of them at that time.
    Mutant("a link that still holds a cancelled slice is not closed", COMPLETION,
           "      close_link(entry.link, {ErrorCode::link_failed, \"closed to end a transfer that did not stop in time\"});",
           "      (void)token;", "RevocableHeld.*"),
    Mutant("an echo answers with what was sent, not with what has landed", PROOF,
           "const bool ours = place != kMaxLinks && scratch.missing;",
           "const bool ours = place != kMaxLinks && scratch.missing && false;", "seeds@3000"),
    Mutant("an immediate that was refused alone counts as told", COMPLETION,
           "  if (entry.op == transport::Op::write_immediate && !broken) forget_immediate(token);\n", "", "seeds@3000"),
    Mutant("an event's sign that comes before its record is lost", "src/engine/record.cc",
           "received_[sequence % received_.size()] ? Past::taken : Past::to_come", "Past::taken", "seeds@1000"),
    Mutant("a piece that is cut anew loses a byte", "src/engine/peer_posting.cc",
           "      second.piece.offset += limit;\n      second.piece.length -= limit;",
           "      second.piece.offset += limit;\n      second.piece.length -= std::min(second.piece.length, limit + 1);",
           "seeds@1000"),
    Mutant("a piece that is cut anew is not counted", "src/engine/peer_posting.cc",
           "    ++t.pieces_out;\n    retries_.push_back(rest);", "    retries_.push_back(rest);", "seeds@1000"),
    Mutant("an atomic in doubt is posted again", LINKS, "} else if (atomic) {", "} else if (atomic && false) {", "seeds@1000"),
    Mutant("a link that completes nothing stays up", LINKS,
           "      if (is_over(link.last_progress, bound_))\n        close_link(",
           "      if (is_over(link.last_progress, bound_) && link.in_flight > 1000)\n        close_link(", "Unanswered.*"),
    Mutant("an older connection takes the session over", "src/control/acceptor.cc",
           "  if (peer.stamp < session->peer_stamp() || dialer_.wins_simultaneous_open(peer))", "  if (dialer_.crosses(peer))",
           "unit_control@Lies.*"),
    Mutant("a handshake may take its time", "src/control/acceptor.cc",
           "  return now < after(pending.since, kHandshakeTimeout);",
           "  return now < after(pending.since, 100 * kHandshakeTimeout);",
           "unit_control@Lies.*"),
]
