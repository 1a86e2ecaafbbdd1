#pragma once

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "engine/transfers/transfers.h"
#include "one_link.h"

namespace fairway::engine {

struct NoWindows final : MessageMemory {
  RemoteRegionId there;  // what each window of the peer's is imported as
  Result<RegionId> open_window(const Slice&, std::uint64_t, std::size_t, std::vector<std::byte>&) override {
    return Status(ErrorCode::unsupported, {});
  }
  Result<RegionId> open_gathering(std::uint64_t, std::size_t, std::vector<std::byte>&, std::byte*&) override {
    return Status(ErrorCode::unsupported, {});
  }
  void close_window(RegionId, std::uint32_t) override {}
  RemoteRegionId import_window(Description, Status&) override { return there; }
  void release_window(RemoteRegionId) override {}
};

// What its parts ask of the peer goes to its Transfers, as in Peer.
struct TransferringPeer final : FakePeer {
  using FakePeer::FakePeer;
  void take_turns(std::uint32_t slot) override { transfers->take_turns(slot); }
  void drained(std::uint32_t slot) override { transfers->drained(slot); }
  void fail(std::uint32_t slot, const Status& status) override { transfers->fail(slot, status); }
  void finish(std::uint32_t slot, const Status& status) override { transfers->finish(slot, status); }
  void advance(std::uint32_t slot) override { transfers->advance(slot); }
  void signal(std::uint32_t slot) override { transfers->signal(slot); }
  void piece_done(std::uint32_t token, std::uint64_t value) override { transfers->piece_done(token, value); }
  void piece_failed(std::uint32_t token, const Status& status) override { transfers->piece_failed(token, status); }
  void on_untaken(std::uint32_t token) override { transfers->on_untaken(token); }
  std::uint32_t acquire_record(RecordType type) override { return records->acquire(type); }
  void enqueue_record(std::uint32_t record, std::uint32_t owner) override { records->enqueue(record, owner); }
  bool post_now(std::span<std::byte> head, std::span<const std::byte> tail) override {
    return records->post_now(head, tail);
  }
  Transfers* transfers = nullptr;
  RecordSender* records = nullptr;
};

// The way of transfers to one link and back, with every part of a peer that it passes, and no engine.
struct Transferring : OneLinkOf<TransferringPeer>, TransferOwner {
  explicit Transferring(std::size_t wires = 1) : Transferring(make(wires)) {}
  explicit Transferring(WorkerTables::Transports wires) : OneLinkOf(std::move(wires)) {
    peer.transfers = &transfers;
    peer.records = &records;
    transfers.greeted(1024 - 64);
  }
  void epoch_closed(std::uint8_t link, bool both) override { transfers.epoch_closed(link, both); }
  bool wait_for(TransferId, std::uint32_t, bool& failed) override {
    failed = first_failed;
    return !first_failed;
  }
  void no_longer_waits(std::uint32_t) override {}
  void ended(std::uint32_t slot) override { done.push_back(slot); }
  Slice signal_word(std::uint32_t, std::uint64_t) override { return {}; }

  std::uint32_t begin(std::uint64_t length, RequestOptions options = {}, std::uint64_t offset = 0) {
    Request request = write(length, offset);
    request.options = options;
    return start(request);
  }
  std::uint32_t start(const Request& request) {
    const std::uint32_t slot = peer.begin(request);
    if (request.options.deadline != kForever)
      peer.table[slot].deadline = request.options.deadline.count() > 0 ? peer.time + 5 : 0;
    transfers.start(slot);
    return slot;
  }
  void pump() {
    (void)transfers.pump();
    for (std::uint16_t i = 0; i < transports.size(); ++i) outbox.flush(i);
  }
  void event(transport::SliceToken token, const Status& status = {}) {
    transport::Event event;
    event.kind = status ? transport::EventKind::done : transport::EventKind::failed;
    event.status = status;
    transfers.on_slice(token, event);
  }
  void all_done(std::size_t i = 0) {
    for (const transport::SliceToken token : std::exchange(wire(i).posted, {})) event(token);
  }
  const Status& status_of(std::uint32_t slot) { return peer.table[slot].completion.status; }

  NoWindows windows;
  NotificationQueue queue{1, 64};
  CounterTable counters{4};
  std::atomic_flag atomics;
  Staging staging{peer, peer.tables, nullptr, peer.table.capacity(), atomics};
  Notifier notifier{peer, records.stream(), queue, counters, 4};
  StagingClient client{peer, staging};
  RemoteRequests requests{peer, client};
  AnyReceives all{1};
  AnyWaiting any{all, 0};
  MessageMatcher matcher{peer, windows, any, 4096};
  Transfers transfers{peer, *this, links, routes, rates, short_path, records, notifier, requests, matcher, client};
  bool first_failed = false;
  std::vector<std::uint32_t> done;
};
struct TransferringByTwo : Transferring {  // the cable's link is not up yet
  TransferringByTwo() : Transferring(2) {}
};

}  // namespace fairway::engine
