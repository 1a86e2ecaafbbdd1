#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/messages/matcher.h"
#include "unit/engine/fake_peer.h"

namespace fairway::engine {

// Two matchers that hear each other's records, without links: the bytes of long messages are the test's matter.
inline constexpr std::uint32_t kUnexpectedLimit = 4096;
inline constexpr std::size_t kEager = 256;

struct Windows final : MessageMemory {
  Result<RegionId> open_window(const Slice&, std::uint64_t length, std::size_t,
                               std::vector<std::byte>& description) override {
    Description window;
    window.incarnation = 1;
    window.region = {++last, 1};
    window.size_bytes = length;
    window.access = Access::write;
    description = format_description(window);
    open.push_back(window.region);
    return window.region;
  }
  Result<RegionId> open_gathering(std::uint64_t length, std::size_t most, std::vector<std::byte>& description,
                                  std::byte*& memory) override {
    gathered.resize(length);
    memory = gathered.data();
    return open_window({}, length, most, description);
  }
  void close_window(RegionId window, std::uint32_t slot) override {
    std::erase(open, window);
    if (slot != kNoSlot) closing.push_back(slot);
  }
  RemoteRegionId import_window(Description window, Status&) override {
    imported.push_back(window.region);
    return {window.region.slot, 1};
  }
  void release_window(RemoteRegionId window) override {
    std::erase_if(imported, [&](RegionId region) { return region.slot == window.slot; });
  }

  bool worth_telling() const override { return tells; }

  bool tells = false;
  std::vector<std::byte> gathered;
  std::uint32_t last = 0;
  std::vector<RegionId> open, imported;
  std::vector<std::uint32_t> closing;
};

// One side of a session: its records go to the other one when it is told so.
struct MessageSide {
  MessageSide() : matcher(peer, windows, any, kUnexpectedLimit) {
    matcher.greeted(kUnexpectedLimit, kEager);
    peer.on_fail = [this](std::uint32_t slot) {
      const Transfer& t = peer.table[slot];
      if (t.queued) matcher.remove(slot);
      if (t.rendezvous.announced || t.request.operation == Operation::receive) matcher.stop(slot);
    };
    peer.on_end = [this](std::uint32_t slot) { matcher.ended(peer.table[slot]); };
  }
  std::uint32_t start(Operation operation, std::uint64_t tag, std::vector<std::byte>& memory,
                      const RequestOptions& options = {}) {
    Request request;
    request.options = options;
    request.operation = operation;
    request.tag = tag;
    request.layout = Extent{{peer.add(memory), 0, memory.size()}, {}};
    const std::uint32_t slot = peer.begin(request);
    matcher.start(slot);
    return slot;
  }
  void take(const RecordHeader& r) {
    using namespace record;
    switch (r.type) {
      case RecordType::send_eager: return matcher.on_send_eager(*decode<SendEager>(r.body));
      case RecordType::send_announce: return matcher.on_send_announce(*decode<SendAnnounce>(r.body));
      case RecordType::send_clear: return matcher.on_send_clear(*decode<SendClear>(r.body));
      case RecordType::send_written: return matcher.on_send_written(*decode<SendWritten>(r.body));
      case RecordType::send_abort: return matcher.on_send_abort(*decode<SendAbort>(r.body));
      case RecordType::send_done: return matcher.on_send_done(*decode<SendDone>(r.body));
      case RecordType::send_armed: return matcher.on_send_armed(r.sequence, *decode<SendArmed>(r.body), false);
      case RecordType::send_direct: return matcher.on_send_direct(r.sequence, *decode<SendDirect>(r.body), false);
      case RecordType::receive_posted: return matcher.on_receive_posted(r.sequence, *decode<ReceivePosted>(r.body));
      case RecordType::receive_withdrawn:
        return matcher.on_receive_withdrawn(decode<ReceiveWithdrawn>(r.body)->value, false);
      default: FAIL() << "no record of a matcher";
    }
  }

  FakePeer peer;
  Windows windows;
  AnyReceives all{1};
  AnyWaiting any{all, 0};
  MessageMatcher matcher;
};

struct Messages : testing::Test {
  // Until neither side has anything to say. `backwards`: records overtake each other.
  void exchange(bool backwards = false) {
    for (bool any = true; any;) {
      any = false;
      for (auto [from, to] : {std::pair(&left, &right), std::pair(&right, &left)}) {
        (void)from->matcher.announce();
        for (const auto& bytes : std::exchange(from->peer.handed_over, {})) {
          to->take(*decode_header(bytes));
          any = true;
        }
        auto records = from->peer.take_records();
        if (backwards) std::reverse(records.begin(), records.end());
        for (const std::uint32_t record : records) {
          to->take(from->peer.header(record));
          from->peer.stream.arrived(record);
          any = true;
        }
      }
    }
  }
  MessageSide left, right;
};

}  // namespace fairway::engine
