#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "transport/command.h"
#include "transport/offers.h"
#include "transport/planned_links.h"

// A transport of a third party, between the engines of one process. A link is a cable: messages wait at its ends, and
// the initiator of a write or read copies with the cable locked. It stands on the contract (transport/transport.h) and
// on the library's help for transports that connect through control (transport/planned_links.h), and is registered
// by RegistryOptions::others. The conformance suite runs on it.
namespace mailbox {

using namespace fairway;
using namespace fairway::transport;
using fairway::transport::Slice;

struct Cable {  // shared by the two ends of a link
  struct End {
    Task* reader = nullptr;
    const RegionTable* regions = nullptr;
    std::vector<std::vector<std::byte>> letters;  // that wait here
  };
  std::mutex mutex;  // guards what follows
  bool cut = false;  // by an end that closed it
  std::uint64_t link_name = 0;
  End acceptor, initiator;
};

class Mailbox final : public PlannedTransportWith<> {
 public:
  Mailbox(std::shared_ptr<Offers<Cable>> offers, RegionTable& regions, Runtime& runtime)
      : PlannedTransportWith("mailbox", 1, regions, runtime), offers_(std::move(offers)) {
    devices_.resize(1);
    devices_[0].name = "mailbox";
    devices_[0].capabilities.operations = bits(Op::message, Op::write, Op::read);
    devices_[0].capabilities.queue_depth = kDepth;
    devices_[0].capabilities.ordered = devices_[0].capabilities.visible_when_done = true;
  }
  ~Mailbox() override { close(); }

  std::size_t post(std::span<const Slice> slices) override {
    return post_each(slices, [this](const Link& link, const Slice& slice) -> std::optional<ErrorCode> {
      Cable& cable = *cables_[link.id.slot];
      const std::lock_guard lock(cable.mutex);
      Cable::End& to = link.initiator ? cable.acceptor : cable.initiator;
      if (cable.cut || to.letters.size() == kDepth || inbox_.size() >= kDepth) return std::nullopt;
      Command command;
      ErrorCode code = prepare(link, slice, command);
      BlockCursor cursor;
      for (Piece piece; code == ErrorCode::ok && slice.op != Op::message && !cursor.done(command.slice);) {
        code = cursor.next(command, command.slice.length, piece);
        if (code == ErrorCode::ok) code = copy_piece(command, piece, *to.regions);
      }
      if (code != ErrorCode::ok) return code;
      if (slice.op == Op::message) to.letters.emplace_back(slice.local, slice.local + slice.length);
      if (slice.op == Op::message) to.reader->wake();
      inbox_.add(EventKind::done).token = slice.token;
      return code;
    });
  }
  void deregister(std::uint64_t handle) override {  // the table refuses by now; waits for copies under way
    for (const auto& [slot, cable] : cables_) std::lock_guard(cable->mutex);
    PlannedTransportWith::deregister(handle);
  }
  std::size_t poll(std::span<Event> events, Time now) override {
    inbox_.begin_poll();
    if (!closed_) links_.check_deadlines(now);
    poll_each([this](const Link& link) {
      Cable& cable = *cables_[link.id.slot];
      const std::lock_guard lock(cable.mutex);
      take_letters(link, cable);
      if (cable.cut && is_up(&link)) fail_end(link, {ErrorCode::link_failed, "the peer closed it"});
      return cable.cut;
    });
    return inbox_.take(events);
  }
  bool prepare_sleep() override { return inbox_.empty(); }  // a peer that sends or closes wakes the reader

 private:
  static constexpr std::size_t kDepth = 64;

  Result<std::vector<std::byte>> make_end(const Link& link) override {
    std::vector<std::byte> number(sizeof(std::uint64_t));
    if (!link.initiator) return number;
    runtime_.rng.fill(number);
    const auto cable = std::make_shared<Cable>();
    cable->link_name = link.name();
    plug_in(link, cable, cable->initiator);
    offers_->add(ByteReader(number).get<std::uint64_t>(), cable);
    return number;
  }
  Status connect_end(const Link& link, std::span<const std::byte> theirs) override {
    if (link.initiator) return {};
    const auto cable = offers_->find(ByteReader(theirs).get<std::uint64_t>());
    if (cable == nullptr) return {ErrorCode::link_failed, "mailbox: the peer's end is gone"};
    plug_in(link, cable, cable->acceptor);
    return {};
  }
  void plug_in(const Link& link, const std::shared_ptr<Cable>& cable, Cable::End& end) {
    const std::lock_guard lock(cable->mutex);
    end.reader = task_;
    end.regions = &regions_;
    cables_[link.id.slot] = cable;
  }
  void fail_end(const Link& link, Status why) override {
    links_.on_down(links_.at(link.id.slot));
    inbox_.add(EventKind::link_down, link.id, std::move(why));
  }
  void end_epoch(Link& link) override {
    const auto cable = cables_[link.id.slot];
    drop_end(link);
    take_letters(link, *cable);  // their senders were told that they are done
    fenced(link, 0);
  }
  void drop_end(const Link& link) override {
    const auto cable = cables_.extract(link.id.slot);
    if (!cable) return;
    const std::lock_guard lock(cable.mapped()->mutex);
    Task* const peer = (link.initiator ? cable.mapped()->acceptor : cable.mapped()->initiator).reader;
    if (!std::exchange(cable.mapped()->cut, true) && peer != nullptr) peer->wake();
  }
  void take_letters(const Link& link, Cable& cable) {  // it is locked, or cut
    for (const auto& letter : std::exchange((link.initiator ? cable.initiator : cable.acceptor).letters, {}))
      inbox_.add(EventKind::message, link.id, letter);
  }

  const std::shared_ptr<Offers<Cable>> offers_;
  std::map<std::uint32_t, std::shared_ptr<Cable>> cables_;  // by slot
};

}  // namespace mailbox
