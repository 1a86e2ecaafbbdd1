#include <algorithm>
#include <string>
#include <utility>

#include "engine/submissions.h"

namespace fairway::engine {
namespace {

class Watch {
 public:
  explicit Watch(EndsCount<>& ends) : ends_(ends) { ends_.begin(); }
  ~Watch() { ends_.end(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  EndsCount<>& ends_;
};

std::string at(std::size_t index) {
  return "ids[" + std::to_string(index) + "]: ";
}

Status elsewhere(std::size_t index) {
  return {ErrorCode::invalid_argument, at(index) +
                                           "its completion goes to poll() or a callback: only transfers with "
                                           "Deliver::to_wait can be waited for"};
}

}  // namespace

Status TransferWaits::late(const char* what) {
  waiting_.found_nothing();
  return {ErrorCode::timed_out, what};
}

Result<Completion> TransferWaits::wait_any(std::span<const TransferId> ids, Timeout timeout) {
  waiting_.drive_if_due();
  const Time until = waiting_.deadline(timeout);
  EndsCount<>& ends = tables_.transfers.ends();
  const Watch watch(ends);
  for (;;) {
    const std::uint32_t seen = ends.seen();
    bool any = false;  // in flight
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Stage stage = tables_.transfers.stage(ids[i], std::memory_order_seq_cst);
      if (stage == Stage::free) continue;
      if (!tables_.transfers.is_to_wait(ids[i])) return elsewhere(i);
      any |= stage == Stage::active;
      Completion done;
      if (stage == Stage::done && tables_.transfers.collect(ids[i], done)) return done;
    }
    if (!any)
      return Status(ErrorCode::not_found, "none of the transfers is there: all completions were collected before");
    if (waiting_.now() >= until) return late("all of the transfers are still in flight; wait again, or cancel them");
    waiting_.wait(ends.word(), seen, until);
  }
}

// One after the other: who waits for all need not be woken for each.
Status TransferWaits::wait_all(std::span<const TransferId> ids, std::span<Completion> completions, Timeout timeout) {
  if (completions.size() < ids.size())
    return {ErrorCode::invalid_argument, "wait_all() needs space for one completion per id"};
  waiting_.drive_if_due();
  const Time until = waiting_.deadline(timeout);
  for (std::size_t i = 0; i < ids.size(); ++i)
    for (;;) {
      const Stage stage = tables_.transfers.stage(ids[i]);
      if (stage == Stage::free) break;
      if (!tables_.transfers.is_to_wait(ids[i])) return elsewhere(i);
      if (stage == Stage::done) break;
      if (waiting_.now() >= until) return late("some of the transfers are still in flight; wait again, or cancel them");
      waiting_.wait(tables_.transfers[ids[i].slot].word, TransferTable::pack(ids[i].generation, Stage::active), until);
    }
  Status status;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (tables_.transfers.collect(ids[i], completions[i])) continue;
    const Status gone(ErrorCode::not_found, at(i) + "no such transfer, or its completion was collected before");
    completions[i] = {ids[i], gone, 0, 0, nullptr};
    if (status) status = gone;
  }
  return status;
}

Status TransferWaits::flush(PeerId peer, Timeout timeout) {
  if (peer.slot >= tables_.peers.capacity() || !peer) return tables_.peers.why_not(peer);
  if (!tables_.peers.find(peer)) return {};  // of an earlier session, which ended after its transfers
  return settle(peer.slot, timeout);
}

// Those that a peer moves only when its program sends are left out.
std::vector<TransferId> TransferWaits::in_flight(std::optional<std::uint32_t> peer) const {
  std::vector<TransferId> found;
  for (std::uint32_t slot = 0; slot < tables_.transfers.capacity(); ++slot) {
    const TransferId id = tables_.transfers.id(slot);
    if (!tables_.transfers.is_active(id)) continue;
    const bool counts = !tables_.transfers[slot].receives.load(std::memory_order_relaxed) &&
                        (!peer || *peer == tables_.transfers[slot].peer.load(std::memory_order_relaxed));
    if (counts && tables_.transfers.is_active(id)) found.push_back(id);  // of that transfer, not of one after it
  }
  return found;
}

Status TransferWaits::settle(std::optional<std::uint32_t> peer, Timeout timeout) {
  const Time until = waiting_.deadline(timeout);
  EndsCount<>& ends = tables_.transfers.ends();
  const Watch watch(ends);
  const auto meet_all = [&] { workers_.call_all([](Worker&) {}); };
  meet_all();  // who ended something before has stored it; from now on each sees that somebody watches
  std::vector<TransferId> left = in_flight(peer);
  for (;;) {
    const std::uint32_t seen = ends.seen();
    std::erase_if(left, [&](TransferId id) { return !tables_.transfers.is_active(id); });
    if (left.empty()) break;
    if (waiting_.now() >= until) {
      waiting_.found_nothing();
      return {ErrorCode::timed_out, std::to_string(left.size()) + " transfers are still in flight, one of them to " +
                                        tables_.peers.name_at(tables_.transfers[left.front().slot].peer)};
    }
    waiting_.wait(ends.word(), seen, until);
  }
  meet_all();  // their callbacks have returned
  return {};
}

}  // namespace fairway::engine
