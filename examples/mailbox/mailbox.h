#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/bytes.h"
#include "transport/blocks.h"
#include "transport/handles.h"
#include "transport/planned_transport.h"

// A transport of somebody else's, between the engines of one process: messages go through a box of the other side's,
// and who writes or reads copies, with that box locked. It stands on the contract (transport/transport.h) and on what
// the library has for those whose links are made through control (transport/planned_transport.h), and is registered by
// RegistryOptions::others. The conformance suite runs on it.
namespace mailbox {

using namespace fairway;
using namespace fairway::transport;
using fairway::transport::Slice;

struct Box {  // one end of a link: what waits there, and whose memory may be reached
  struct Letter {
    EventKind kind = EventKind::message;  // or immediate
    std::uint32_t immediate = 0;
    std::vector<std::byte> bytes;
  };
  std::mutex mutex;
  std::deque<Letter> letters;
  std::uint64_t immediates = 0;  // taken out
  Task* reader = nullptr;        // null: the end is closed
  RegionTable* regions = nullptr;
  std::uint64_t link_name = 0;

  void wake() {
    const std::lock_guard lock(mutex);
    if (reader != nullptr) reader->wake();
  }
};

struct PostOffice {  // where ends find each other; any thread
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<Box>> boxes;  // by unguessable numbers
};

class Mailbox final : public PlannedTransport {
 public:
  Mailbox(std::shared_ptr<PostOffice> office, RegionTable& regions, Runtime& runtime)
      : PlannedTransport("mailbox", 1, runtime), office_(std::move(office)), regions_(regions) {
    Device& device = devices_.emplace_back();
    device.name = "mailbox";
    for (const Op op : {Op::message, Op::write, Op::read, Op::write_immediate})
      device.capabilities.operations = static_cast<Bits>(device.capabilities.operations | static_cast<Bits>(op));
    for (const Shape shape : {Shape::strided, Shape::indexed})
      device.capabilities.shapes = static_cast<Bits>(device.capabilities.shapes | static_cast<Bits>(shape));
    device.capabilities.max_slice_bytes = std::uint64_t{1} << 20;
    device.capabilities.completion = CompletionLevel::visible;
    device.capabilities.max_message_bytes = kMessageBytes;
    device.capabilities.queue_depth = kDepth;
    device.capabilities.ordered = true;
  }
  ~Mailbox() override { close(); }

  std::size_t post(std::span<const Slice> slices) override {
    std::size_t taken = 0;
    for (; taken < slices.size(); ++taken) {
      const Slice& slice = slices[taken];
      const Link* link = links_.find(slice.link);
      if (closed_ || !is_up(link) || inbox_.size() >= kDepth) break;
      Command command;
      const auto* import = imports_.find(slice.remote_handle, link->peer);
      ErrorCode code =
          prepare(devices_[0].capabilities, regions_, slice, import == nullptr ? nullptr : &import->region, command);
      Box& to = *ends_[link->id.slot].theirs;
      const std::lock_guard lock(to.mutex);
      const bool letter = slice.op == Op::message || slice.op == Op::write_immediate;
      if (to.reader == nullptr || (letter && to.letters.size() == kDepth)) break;
      if (code == ErrorCode::ok && slice.op != Op::message) code = move(command, *to.regions);
      if (code != ErrorCode::ok) {
        inbox_.refuse(slice, name(), code);
        continue;
      }
      if (slice.op == Op::message)
        to.letters.push_back({EventKind::message, 0, {slice.local, slice.local + slice.length}});
      if (slice.op == Op::write_immediate) to.letters.push_back({EventKind::immediate, slice.immediate, {}});
      if (letter) to.reader->wake();
      inbox_.add(EventKind::done).token = slice.token;
    }
    return taken;
  }
  Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes>) override {
    if (!links_.knows(peer)) return Status(ErrorCode::not_found, "mailbox: no such peer");
    return imports_.add(peer, memory.id);
  }
  void release(std::uint64_t remote_handle) override { imports_.release(remote_handle); }
  void deregister(std::uint64_t handle) override {  // the table refuses by now: what is left are copies under way
    for (const End& end : ends_)
      if (end.own) std::lock_guard(end.own->mutex);
    PlannedTransport::deregister(handle);
  }
  std::size_t poll(std::span<Event> events, Time now) override {
    inbox_.begin_poll();
    if (!closed_) links_.check_deadlines(now);
    poll_each([&](Link& link) {
      const End& end = ends_[link.id.slot];
      const std::scoped_lock lock(end.own->mutex, end.theirs->mutex);
      take_letters(link, *end.own);
      if (end.theirs->reader == nullptr && is_up(&link)) fail_end(link, {ErrorCode::link_failed, "the peer closed it"});
      return end.failed;
    });
    return inbox_.take(events);
  }
  bool prepare_sleep() override {
    return inbox_.empty() && std::ranges::none_of(links_.up(), [&](std::uint32_t slot) {
             const End& end = ends_[slot];
             const std::scoped_lock lock(end.own->mutex, end.theirs->mutex);
             return !end.own->letters.empty() || (end.theirs->reader == nullptr && !end.failed);
           });
  }

 private:
  static constexpr std::size_t kDepth = 64;
  struct End {
    std::shared_ptr<Box> own, theirs;
    bool failed = false;
  };

  Result<std::vector<std::byte>> make_end(const Link& link) override {
    std::vector<std::byte> number(sizeof(std::uint64_t));
    runtime_.rng.fill(number);
    if (ends_.size() <= link.id.slot) ends_.resize(link.id.slot + 1);
    ends_[link.id.slot] = {std::make_shared<Box>(), nullptr, false};
    ends_[link.id.slot].own->reader = task_;
    ends_[link.id.slot].own->regions = &regions_;
    ends_[link.id.slot].own->link_name = link.name();
    const std::lock_guard lock(office_->mutex);
    std::erase_if(office_->boxes, [](const auto& each) { return each.second.expired(); });
    office_->boxes[ByteReader(number).get<std::uint64_t>()] = ends_[link.id.slot].own;
    return number;
  }
  Status connect_end(const Link& link, std::span<const std::byte> theirs) override {
    const std::lock_guard lock(office_->mutex);
    const auto found = office_->boxes.find(ByteReader(theirs).get<std::uint64_t>());
    if (found != office_->boxes.end()) ends_[link.id.slot].theirs = found->second.lock();
    if (ends_[link.id.slot].theirs == nullptr) return {ErrorCode::link_failed, "mailbox: the peer's end is gone"};
    return {};
  }
  void drop_end(const Link& link) override {
    if (link.id.slot < ends_.size() && ends_[link.id.slot].own) close_end(link, false);
  }
  void fail_end(const Link& link, Status why) override {
    if (std::exchange(ends_[link.id.slot].failed, true)) return;
    inbox_.add(EventKind::link_down, link.id, std::move(why));
  }
  void end_epoch(Link& link) override {
    fenced(link, close_end(link, true));  // their senders were told that they are done
  }
  std::uint64_t close_end(const Link& link, bool take) {
    const End end = std::exchange(ends_[link.id.slot], {});
    std::uint64_t immediates = 0;
    {
      const std::lock_guard lock(end.own->mutex);
      end.own->reader = nullptr;
      if (take) take_letters(link, *end.own);
      immediates = end.own->immediates;
    }
    if (end.theirs) end.theirs->wake();
    return immediates;
  }
  void take_letters(const Link& link, Box& box) {  // locked
    for (const Box::Letter& letter : box.letters) {
      inbox_.add(letter.kind, link.id, letter.bytes).value = letter.immediate;
      box.immediates += letter.kind == EventKind::immediate ? 1 : 0;
    }
    box.letters.clear();
  }
  void forget(PeerIndex peer) override { imports_.release_all(peer); }
  // All of it, or an error and nothing.
  static ErrorCode move(const Command& command, const RegionTable& theirs) {
    const Slice& slice = command.slice;
    for (const bool copies : {false, true}) {
      BlockCursor cursor;
      for (Piece piece; command.local_begin != nullptr && !cursor.done(slice);) {
        RegionTable::Resolved at;
        ErrorCode code = cursor.next(command, slice.length, piece);
        if (code == ErrorCode::ok)
          code = theirs.resolve(command.region, piece.remote_block, slice.length, needed_access(slice.op), at);
        if (code != ErrorCode::ok) return code;
        if (copies && slice.op == Op::read) std::memmove(piece.local, at.address, piece.length);
        if (copies && slice.op != Op::read) std::memmove(at.address, piece.local, piece.length);
      }
    }
    return ErrorCode::ok;
  }

  const std::shared_ptr<PostOffice> office_;
  RegionTable& regions_;
  ImportTable<> imports_;
  std::vector<End> ends_;  // by slot
};

}  // namespace mailbox
