#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/tables/peer_context.h"

namespace fairway::engine {

// A peer as its parts see it, without an engine: it keeps what they ask for. It has the worker's tables, too.
class FakePeer : public PeerContext, public WorkerContext {
 public:
  static constexpr PeerId kId{3, 1};
  explicit FakePeer(WorkerTables::Transports transports = {}) : FakePeer(std::move(transports), nullptr) {}
  explicit FakePeer(transport::RegionTable& regions) : FakePeer({}, &regions) {}  // of several peers

  std::string text() const override { return "the peer"; }
  bool is_down() const override { return down; }
  Time now() const override { return time; }
  void wake_at(Time at) override { woken_at = std::min(woken_at, at); }
  void end_session(const Status& reason) override { session_end = reason; }
  void has_more() override {}
  void again() override {}
  void on_untaken(std::uint32_t token) override { untaken.push_back(token); }
  void notice() override { ++noticed; }
  Status why_ended() const override { return {ErrorCode::peer_dead, "it has left"}; }
  void violation(const std::string& what) override { violations.push_back(what); }
  void take_turns(std::uint32_t slot) override { turns.push_back(slot); }
  void drained(std::uint32_t slot) override {
    Transfer& t = table[slot];
    if (t.phase == Phase::notifying) return finish(slot, {});
    if (t.phase == Phase::draining && t.pieces_out == 0) finish(slot, t.status);
  }
  void fail(std::uint32_t slot, const Status& status) override {
    Transfer& t = table[slot];
    if (t.phase == Phase::draining || t.phase == Phase::done) return;
    t.status = status;
    t.phase = Phase::draining;
    ++t.pieces_out;
    if (on_fail) on_fail(slot);
    --t.pieces_out;
    drained(slot);
  }
  void finish(std::uint32_t slot, const Status& status) override {
    table[slot].phase = Phase::done;
    ended[slot] = status;
    if (on_end) on_end(slot);
  }
  void adopt(std::uint32_t slot) override { table[slot].request.peer = id(); }
  void begin_inner(std::uint32_t) override {}
  void advance(std::uint32_t slot) override { advanced.push_back(slot); }
  void signal(std::uint32_t slot) override { signalled.push_back(slot); }
  void piece_done(std::uint32_t token, std::uint64_t value) override {
    const std::uint32_t slot = end_piece(token);
    table[slot].completion.old_value = value;
    done.push_back(slot);
  }
  void piece_failed(std::uint32_t token, const Status& status) override { fail(end_piece(token), status); }
  void compare(std::uint32_t, const Piece& piece, std::uint64_t ours, std::uint64_t theirs) override {
    compared.push_back({piece.block, ours, theirs});
  }
  transport::Reach reach_by_any(RegionId, RemoteRegionId) override { return reach; }
  void remove_window(RegionId window, std::uint32_t slot, std::shared_ptr<void> kept) override {
    last_kept = std::move(kept);
    removed.emplace_back(window, slot);
  }
  void end_lease(RegionId region, std::function<void(Status)> then) override {
    ending = std::move(then);
    closed.push_back(region);
  }
  std::uint32_t acquire_record(RecordType) override { return pool.acquire(); }
  void enqueue_record(std::uint32_t record, std::uint32_t owner) override {
    pool[record].owner = owner;
    stream.enqueue(record);
  }

  bool post_now(std::span<std::byte> head, std::span<const std::byte> tail) override {
    if (!takes_now || !stream.takes_one_now()) return false;
    ByteWriter(head.first(sizeof(std::uint32_t))).put(stream.next_number());
    stream.sent_now();
    std::vector<std::byte>& whole = handed_over.emplace_back(head.begin(), head.end());
    whole.insert(whole.end(), tail.begin(), tail.end());
    return true;
  }

  // A transfer of this peer that has just been handed over.
  std::uint32_t begin(const Request& request) {
    const std::uint32_t slot = table.acquire();
    Request of_peer = request;
    of_peer.peer = kId;
    table[slot].begin(of_peer, 0);
    table[slot].phase = Phase::queued;
    return slot;
  }
  RegionId add(std::vector<std::byte>& memory, MemoryKind kind = MemoryKind::host) {
    return *local.add(memory.data(), memory.size(), kind, Access::none);
  }
  // The records that were queued and not taken yet, in order.
  std::vector<std::uint32_t> take_records() {
    std::vector<std::uint32_t> all;
    for (std::uint32_t record = stream.next(); record != kNoSlot; record = stream.next()) {
      stream.posted(record);
      all.push_back(record);
    }
    return all;
  }
  RecordHeader header(std::uint32_t record) {
    return *decode_header(std::span<const std::byte>(pool[record].bytes).first(pool[record].size));
  }

  TransferTable table{64, 64};  // the second half: of the engine's own
  transport::RegionTable local{64};
  transport::RegionTable bounds{16};  // of imported regions
  WorkerTables tables;
  RecordPool& pool = tables.records;
  RecordStream stream{pool};
  bool down = false;
  Time time = kSecond, woken_at = kNever;
  Status session_end;
  bool takes_now = false;
  std::vector<std::vector<std::byte>> handed_over;  // records, by post_now()
  std::vector<std::string> violations;
  std::vector<std::uint32_t> turns;
  std::map<std::uint32_t, Status> ended;
  std::function<void(std::uint32_t)> on_fail, on_end;
  int noticed = 0;
  std::vector<std::uint32_t> untaken, advanced, signalled, done;  // tokens, and transfers
  struct Compared {
    std::uint64_t block, ours, theirs;
  };
  std::vector<Compared> compared;
  transport::Reach reach = transport::Reach::no;
  std::vector<std::pair<RegionId, std::uint32_t>> removed;  // windows
  std::shared_ptr<void> last_kept;
  std::vector<RegionId> closed;  // leases
  std::function<void(Status)> ending;

 private:
  FakePeer(WorkerTables::Transports transports, transport::RegionTable* regions)
      : PeerContext({kId, 1, 0}, tables),
        tables(0, *this, std::move(transports), table, regions == nullptr ? local : *regions, bounds, 64, 8) {}
  std::uint32_t end_piece(std::uint32_t token) {
    const std::uint32_t slot = tables.slices[token].owner;
    tables.slices.release(token);
    --table[slot].pieces_out;
    return slot;
  }
};

}  // namespace fairway::engine
