#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/bytes.h"
#include "transport/command.h"
#include "transport/planned_transport.h"

// A transport of somebody else's: messages between the engines of one process. It stands on the contract
// (transport/transport.h) and on what the library has for those whose links are made through control
// (transport/planned_transport.h), and is registered by RegistryOptions::others. The conformance suite runs on it.
namespace mailbox {

using namespace fairway;
using namespace fairway::transport;
using fairway::transport::Slice;

struct Box {  // where messages for one end of a link wait
  std::mutex mutex;
  std::deque<std::vector<std::byte>> messages;
  Task* reader = nullptr;  // null: the end is closed
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
    device.capabilities.operations = static_cast<Bits>(Op::message);
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
      if (closed_ || !is_up(link)) break;
      Command command;
      if (const ErrorCode code = prepare(devices_[0].capabilities, regions_, slice, nullptr, command);
          code != ErrorCode::ok) {
        inbox_.refuse(slice, name(), code);
        continue;
      }
      Box& to = *ends_[link->id.slot].theirs;
      const std::lock_guard lock(to.mutex);
      if (to.reader == nullptr || to.messages.size() == kDepth) break;
      to.messages.emplace_back(slice.local, slice.local + slice.length);
      to.reader->wake();
      inbox_.add(EventKind::done).token = slice.token;
    }
    return taken;
  }
  std::size_t poll(std::span<Event> events, Time now) override {
    inbox_.begin_poll();
    if (!closed_) links_.look_at_deadlines(now);
    poll_each([&](Link& link) {
      const End& end = ends_[link.id.slot];
      const std::scoped_lock lock(end.own->mutex, end.theirs->mutex);
      take_messages(link, *end.own);
      if (end.theirs->reader == nullptr && is_up(&link)) fail_end(link, {ErrorCode::link_failed, "the peer closed it"});
      return end.failed;
    });
    return inbox_.take(events);
  }
  bool prepare_sleep() override {
    return inbox_.empty() && std::ranges::none_of(links_.up(), [&](std::uint32_t slot) {
             const End& end = ends_[slot];
             const std::scoped_lock lock(end.own->mutex, end.theirs->mutex);
             return !end.own->messages.empty() || (end.theirs->reader == nullptr && !end.failed);
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
    close_end(link, true);  // whose senders were told that they are done
    fenced(link, 0);
  }
  void close_end(const Link& link, bool take) {
    const End end = std::exchange(ends_[link.id.slot], {});
    {
      const std::lock_guard lock(end.own->mutex);
      end.own->reader = nullptr;
      if (take) take_messages(link, *end.own);
    }
    if (end.theirs) end.theirs->wake();
  }
  void take_messages(const Link& link, Box& box) {  // locked
    for (const auto& message : box.messages) inbox_.add(EventKind::message, link.id, message);
    box.messages.clear();
  }

  const std::shared_ptr<PostOffice> office_;
  RegionTable& regions_;
  std::vector<End> ends_;  // by slot
};

}  // namespace mailbox
