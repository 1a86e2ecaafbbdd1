// size: one actor with every call of an engine
// Every call of an engine from several threads at once, at random, on two engines that are closed in the middle of it.
// Checked are the promises that show from outside: each accepted transfer completes once, messages of a tag come in
// order and whole, ok means that the bytes are there, no byte moves once a region is fenced, and every wait ends.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "pair.h"
#include "support/at_length.h"
#include "support/sanitized.h"

namespace fairway::threads {
namespace {

// One thread's acts on a pair.
class Actor {
 public:
  Actor(std::shared_ptr<Pair> pair, std::size_t number, std::uint64_t seed)
      : pair_(std::move(pair)), number_(number), random_(seed) {}

  void run() {
    while (!pair_->over) act();
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  void act() {
    switch (below(18)) {
      case 0:
      case 1:
      case 2: return write_and_look();
      case 3: return read_and_look();
      case 4: return below(2) == 0 ? send_some() : send_and_receive();
      case 5: return receive_some();
      case 6: return write_for_poll();
      case 7: return write_for_callback();
      case 8: return end_own_memory();
      case 9: return end_far_memory();
      case 10: return cancel_one();
      case 11: return below(2) == 0 ? count() : tell();
      case 12: return ask();
      case 13: return wait_for_several();
      case 14: return use_a_queue();
      case 15: return flush_or_drain();
      case 16: return below(2) == 0 ? look_for_a_message() : use_counters();
      case 17: return map_theirs();
      default: return poll();
    }
  }

  Pair::Side& side(std::size_t which) { return pair_->sides[which]; }
  Extent own_area(std::size_t which, std::uint64_t bytes) {
    return {{side(which).region.id, number_ * kArea, bytes}, {side(which).remote.id, number_ * kArea}};
  }
  // For those that end early: their bytes may land behind those of later ones. `part` of kParts that move at once.
  Extent early_area(std::uint64_t bytes, std::uint64_t part = 0) {
    const std::uint64_t at = (kThreads + kTags + number_) * kArea + part * (kArea / kParts);
    return {{side(0).region.id, at, bytes}, {side(0).remote.id, at}};
  }
  // For those that nobody waits for. No place is used again before the one in it has moved: an engine takes fewer.
  Extent next_place(std::uint64_t bytes) {
    const std::uint64_t at = kAreas * kArea + (number_ * kPlaces + place_++ % kPlaces) * kPlace;
    return {{side(0).region.id, at, bytes}, {side(0).remote.id, at}};
  }
  void may_refuse(const Status& status) { EXPECT_TRUE(status || may_end(status.code())) << status.to_string(); }
  // Waits for what was accepted, which completes once. Empty: it was not accepted, for a reason that may be.
  std::optional<Completion> finish(Engine& engine, const Result<TransferId>& id, bool may_be_cancelled = false) {
    if (!id) {
      const ErrorCode code = id.status().code();
      EXPECT_TRUE(may_end(code) || code == ErrorCode::queue_full || code == ErrorCode::revoked)
          << id.status().to_string();
      return {};
    }
    auto done = engine.wait(*id, kEver);
    EXPECT_TRUE(done) << "accepted, and never completed: " << done.status().to_string();
    EXPECT_EQ(engine.wait(*id, Timeout(0)).status().code(), ErrorCode::not_found) << "it completed twice";
    if (!done) return {};
    EXPECT_TRUE(done->status || may_end(done->status.code()) ||
                (may_be_cancelled && done->status.code() == ErrorCode::cancelled))
        << done->status.to_string();
    return *done;
  }
  // Only of an engine that is closed, or whose peer is.
  bool may_end(ErrorCode code) {
    if (!pair_->over) return false;
    return code == ErrorCode::closed || code == ErrorCode::cancelled || code == ErrorCode::peer_dead ||
           code == ErrorCode::link_failed || code == ErrorCode::stale_incarnation || code == ErrorCode::revoked;
  }
  void fill(std::span<std::byte> bytes) {
    const std::uint64_t with = random_();
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((with >> i % 8 * 8) + i);
  }
  std::uint64_t some_bytes() { return below(4) == 0 ? 1 + below(kArea) : 1 + below(256); }

  void write_and_look() {
    const std::uint64_t bytes = some_bytes();
    const auto from = side(0).memory.subspan(number_ * kArea, bytes);
    fill(from);
    const auto done = finish(*side(0).engine, side(0).engine->write(side(0).other, own_area(0, bytes)));
    if (done && done->status) {
      EXPECT_EQ(std::memcmp(from.data(), side(1).memory.data() + number_ * kArea, bytes), 0)
          << "ok before the bytes were there";
    }
  }
  void read_and_look() {
    const std::uint64_t bytes = some_bytes();
    const auto there = side(1).memory.subspan(number_ * kArea, bytes);
    // ThreadSanitizer takes what sends bytes for their reader until it has returned, even if they have arrived before.
    if (kSanitized) (void)side(1).engine->explain(TransferId{});  // asks the worker
    fill(there);
    const auto done = finish(*side(0).engine, side(0).engine->read(side(0).other, own_area(0, bytes)));
    if (done && done->status) {
      EXPECT_EQ(std::memcmp(there.data(), side(0).memory.data() + number_ * kArea, bytes), 0);
    }
  }

  // Messages of a tag: a number, and as many bytes of it as the number says.
  static std::uint64_t length_of(std::uint64_t number) {
    return number % 16 == 15 ? 8 + number * 977 % 20'000 : 8 + number % 40;
  }
  // Not copied at its send, a message stays with the receive that took it, and ends with that if it is cancelled.
  bool ends_with_its_receive(std::uint64_t number) { return side(0).gpu || length_of(number) > 4096; }
  TransferId send(std::size_t which, std::uint64_t number, bool local_completion) {
    std::byte* const from = side(0).memory.data() + number_ * kArea;
    std::memset(from, static_cast<int>(number & 0xff), length_of(number));
    std::memcpy(from, &number, sizeof number);
    RequestOptions options;
    options.local_completion = local_completion;
    const auto id =
        side(0).engine->send(side(0).other, which, {side(0).region.id, number_ * kArea, length_of(number)}, options);
    if (id) ++pair_->tags[which].sent;
    return id ? *id : TransferId{};
  }
  // Small ones, which are over once they are copied; whoever receives takes them.
  void send_some() {
    const std::size_t which = below(kTags);
    Tag& tag = pair_->tags[which];
    const std::unique_lock lock(tag.sending, std::try_to_lock);
    if (!lock) return;
    for (std::uint64_t left = 1 + below(20); left > 0 && tag.sent - tag.received < 64; --left) {
      if (length_of(tag.sent) > 4096) return;
      const TransferId id = send(which, tag.sent, true);
      if (!id) return;
      (void)finish(*side(0).engine, id, ends_with_its_receive(tag.sent - 1));
    }
  }
  // Both ends by one thread, of any length: a long one is over only once it is received.
  void send_and_receive() {
    const std::size_t which = below(kTags);
    Tag& tag = pair_->tags[which];
    const std::unique_lock sending(tag.sending, std::try_to_lock);
    const std::unique_lock receiving(tag.receiving, std::try_to_lock);
    if (!sending || !receiving) return;
    const TransferId id = send(which, tag.sent, false);
    if (!id) return;
    while (tag.received < tag.sent && (receive_one(which, tag, kEver) || !pair_->over)) {
    }
    (void)finish(*side(0).engine, id);
  }
  void receive_some() {
    const std::size_t which = below(kTags);
    Tag& tag = pair_->tags[which];
    const std::unique_lock lock(tag.receiving, std::try_to_lock);
    if (!lock) return;
    for (std::uint64_t left = 1 + below(20); left > 0 && receive_one(which, tag); --left) {
    }
  }
  // False: none came, and the receive was taken back.
  bool receive_one(std::size_t which, Tag& tag, Timeout patience = std::chrono::milliseconds(2)) {
    const std::size_t at = (kThreads + which) * kArea;
    const PeerId from = below(2) == 0 ? side(1).other : PeerId{};  // or of any, which keeps its place among them
    const auto id = side(1).engine->receive(from, which, {side(1).region.id, at, kArea});
    if (!id) return false;
    auto done = side(1).engine->wait(*id, patience);
    if (!done && done.status().code() == ErrorCode::timed_out) {
      const auto cancelled = side(1).engine->cancel(*id, kEver);
      EXPECT_TRUE(cancelled) << cancelled.status().to_string();
      done = side(1).engine->wait(*id, kEver);
    }
    if (!done) {
      ADD_FAILURE() << "a receive never ended: " << done.status().to_string();
      return false;
    }
    if (!done->status) {
      EXPECT_TRUE(done->status.code() == ErrorCode::cancelled || may_end(done->status.code()))
          << done->status.to_string();
      ++tag.cancelled;
      return false;
    }
    EXPECT_EQ(done->peer, side(1).other);
    std::uint64_t number = 0;
    std::memcpy(&number, side(1).memory.data() + at, sizeof number);
    for (std::uint64_t gone = tag.received; gone < number && ends_with_its_receive(gone) && tag.cancelled > 0; ++gone) {
      --tag.cancelled;
      ++tag.received;
    }
    EXPECT_EQ(number, tag.received) << "messages of tag " << which << " out of order, lost or doubled";
    tag.cancelled = 0;  // what those took stood before this one
    EXPECT_EQ(done->bytes, length_of(number));
    for (std::size_t i = 8; i < done->bytes; ++i)
      if (side(1).memory[at + i] != static_cast<std::byte>(number & 0xff)) {
        ADD_FAILURE() << "message " << number << " of tag " << which << " is damaged at byte " << i;
        break;
      }
    tag.received = number + 1;
    return true;
  }

  Told& new_told() {
    const std::lock_guard lock(pair_->mutex);
    return *pair_->told.emplace_back(std::make_unique<Told>());
  }
  void forget_last(const Told& told) {
    const std::lock_guard lock(pair_->mutex);
    std::erase_if(pair_->told, [&](const auto& each) { return each.get() == &told; });
  }
  void write_for_poll() {
    Told& told = new_told();
    RequestOptions options;
    options.deliver = Deliver::to_poll;
    options.user_data = &told;
    const auto id = side(0).engine->write(side(0).other, next_place(1 + below(kPlace)), options);
    if (!id) return forget_last(told);
    ++pair_->to_poll;
    EXPECT_FALSE(side(0).engine->wait(*id, Timeout(0))) << "a wait took what is poll()'s";
  }
  void write_for_callback() {
    Told& told = new_told();
    RequestOptions options;
    options.deliver = Deliver::to_callback;
    options.user_data = &told;
    options.callback = [](const Completion&, void* to) { ++static_cast<Told*>(to)->times; };
    if (!side(0).engine->write(side(0).other, next_place(1 + below(kPlace)), options)) forget_last(told);
  }
  void poll() {
    std::array<Completion, 8> completions;
    const std::size_t count = side(0).engine->poll(completions);
    for (std::size_t i = 0; i < count; ++i) ++static_cast<Told*>(completions[i].user_data)->times;
    pair_->polled += count;
  }

  // Memory of one's own, freed as soon as deregister() says that nothing touches it.
  void end_own_memory() {
    std::optional<Memory> memory(std::in_place, kParts + below(2 * kArea), side(0).gpu);
    const std::size_t size = memory->bytes().size();
    const auto region = side(0).engine->register_memory(memory->address(), size, Access::all);
    if (!region) return;
    std::vector<TransferId> ids;
    const std::uint64_t bytes = std::min<std::uint64_t>(size, kArea) / kParts;
    for (std::uint64_t i = below(kParts); i > 0; --i) {
      const Extent extent{{region->id, i * bytes, bytes}, early_area(bytes, i).remote};
      const auto id =
          below(2) == 0 ? side(0).engine->write(side(0).other, extent) : side(0).engine->read(side(0).other, extent);
      if (id) ids.push_back(*id);
    }
    end(0, *region, memory->bytes());
    memory.reset();
    for (const TransferId id : ids) {
      const auto done = side(0).engine->wait(id, kEver);
      EXPECT_TRUE(done) << "it outlived its region: " << done.status().to_string();
    }
  }
  // The other side's, which this one writes to and reads from meanwhile.
  void end_far_memory() {
    std::optional<Memory> memory(std::in_place, kParts + below(kArea - kParts), side(1).gpu);
    const std::size_t size = memory->bytes().size();
    const auto region = side(1).engine->register_memory(memory->address(), size, Access::all);
    if (!region) return;
    std::vector<TransferId> ids;
    const auto description = side(1).engine->describe(*region);
    const auto remote = description ? side(0).engine->import_region(side(0).other, *description)
                                    : Result<RemoteRegion>(description.status());
    if (remote)
      for (std::uint64_t i = 1 + below(kParts); i > 0; --i) {
        const std::uint64_t bytes = size / kParts, at = (i - 1) * bytes;
        const Extent extent{{side(0).region.id, number_ * kArea + at, bytes}, {remote->id, at}};
        const auto id =
            below(2) == 0 ? side(0).engine->write(side(0).other, extent) : side(0).engine->read(side(0).other, extent);
        if (id) ids.push_back(*id);
      }
    end(1, *region, memory->bytes());
    memory.reset();
    for (const TransferId id : ids) {
      const auto done = side(0).engine->wait(id, kEver);
      EXPECT_TRUE(done) << "it outlived its target: " << done.status().to_string();
    }
    if (remote) (void)side(0).engine->release(*remote);
  }
  // Impatiently at first, as a program that gives up and asks again.
  void end(std::size_t which, const Region& region, std::span<std::byte> memory) {
    Engine& engine = *side(which).engine;
    Status status = engine.deregister(region, Timeout(below(3) == 0 ? 0 : 200));
    if (status.code() == ErrorCode::not_fenced) {
      EXPECT_NE(engine.fence_state(region), Fence::registered);
      status = engine.deregister(region, kEver);
    }
    EXPECT_TRUE(status || status.code() == ErrorCode::closed || status.code() == ErrorCode::revoked)
        << status.to_string();
    EXPECT_EQ(engine.fence_state(region), Fence::fenced);
    const auto mark = static_cast<std::byte>(below(256));
    std::fill(memory.begin(), memory.end(), mark);
    std::this_thread::yield();
    EXPECT_TRUE(std::ranges::all_of(memory, [mark](std::byte byte) { return byte == mark; })) << "bytes after fenced";
  }

  void cancel_one() {
    Engine& engine = *side(0).engine;
    const auto id = engine.write(side(0).other, early_area(kArea));
    if (!id) return;
    const auto cancelled = engine.cancel(*id, Timeout(below(2) == 0 ? 0 : 100));
    EXPECT_TRUE(cancelled) << cancelled.status().to_string();
    const auto done = engine.wait(*id, kEver);
    EXPECT_TRUE(done) << done.status().to_string();
    if (done && !done->status) {
      EXPECT_TRUE(done->status.code() == ErrorCode::cancelled || may_end(done->status.code()));
    }
  }
  // By wait_any() each once, in whatever order, or all by one wait_all().
  void wait_for_several() {
    Engine& engine = *side(0).engine;
    std::vector<TransferId> ids;
    for (std::uint64_t i = 1 + below(kParts); i > 0; --i) {
      const std::uint64_t at = number_ * kArea + (i - 1) * (kArea / kParts), bytes = 1 + below(kArea / kParts);
      const auto id = engine.write(side(0).other, Extent{{side(0).region.id, at, bytes}, {side(0).remote.id, at}});
      if (id) ids.push_back(*id);
    }
    if (ids.empty()) return;
    if (below(2) == 0) {
      std::vector<Completion> all(ids.size());
      const Status status = engine.wait_all(ids, all, kEver);
      EXPECT_TRUE(status) << status.to_string();
      for (std::size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(all[i].id, ids[i]);
        EXPECT_TRUE(all[i].status || may_end(all[i].status.code())) << all[i].status.to_string();
      }
    } else {
      std::vector<TransferId> left = ids;
      while (!left.empty()) {
        const auto one = engine.wait_any(ids, kEver);
        ASSERT_TRUE(one) << left.size() << " never completed: " << one.status().to_string();
        EXPECT_EQ(std::erase(left, one->id), 1U) << "a completion twice, or of none of them";
        EXPECT_TRUE(one->status || may_end(one->status.code())) << one->status.to_string();
      }
    }
    EXPECT_EQ(engine.wait_any(ids, Timeout(0)).status().code(), ErrorCode::not_found);
  }
  // Completions of a queue come by it alone, each once.
  void use_a_queue() {
    Engine& engine = *side(0).engine;
    const auto queue = engine.make_queue(kParts);
    if (!queue) return may_refuse(queue.status());
    RequestOptions options;
    options.deliver = Deliver::to_poll;
    options.queue = *queue;
    std::vector<TransferId> left;
    for (std::uint64_t i = 1 + below(kParts); i > 0; --i)
      if (const auto id = engine.write(side(0).other, early_area(1 + below(kArea / kParts), i - 1), options))
        left.push_back(*id);
    std::array<Completion, 2> some;
    while (!left.empty()) {
      const Status status = engine.wait(*queue, kEver);
      const std::size_t count = engine.poll(*queue, some);
      ASSERT_TRUE(count > 0 || status) << left.size() << " of a queue never completed: " << status.to_string();
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_EQ(std::erase(left, some[i].id), 1U) << "a completion twice, or of another queue";
    }
    const Status ended = engine.end_queue(*queue);
    may_refuse(ended);
  }
  // What this thread submitted before is complete afterwards.
  void flush_or_drain() {
    Engine& engine = *side(0).engine;
    const auto id = engine.write(side(0).other, own_area(0, some_bytes()));
    const Status status = below(2) == 0 ? engine.flush(side(0).other, kEver) : engine.drain(kEver);
    EXPECT_TRUE(status || may_end(status.code())) << status.to_string();
    if (!id) return;
    const auto done = engine.wait(*id, status ? Timeout(0) : kEver);
    EXPECT_TRUE(done) << "flushed, and not complete: " << done.status().to_string();
  }
  // Whoever may receive a tag's messages finds the next one as it is.
  void look_for_a_message() {
    const std::size_t which = below(kTags);
    Tag& tag = pair_->tags[which];
    const std::unique_lock lock(tag.receiving, std::try_to_lock);
    if (!lock) return;
    const auto found = side(1).engine->probe(below(2) == 0 ? side(1).other : PeerId{}, which, Timeout(below(3) * 100));
    if (!found) {
      const ErrorCode code = found.status().code();
      EXPECT_TRUE(code == ErrorCode::timed_out || may_end(code)) << found.status().to_string();
      return;
    }
    EXPECT_EQ(found->peer, side(1).other);
    bool next = false;
    for (std::uint64_t gone = 0; gone <= tag.cancelled && !next; ++gone) {
      next = found->size_bytes == length_of(tag.received + gone);
      if (!ends_with_its_receive(tag.received + gone)) break;
    }
    EXPECT_TRUE(next) << "found " << found->size_bytes << " bytes, which are not of the next message";
    EXPECT_TRUE(receive_one(which, tag, kEver) || pair_->over) << "found, and not to be had";
  }
  void use_counters() {
    Engine& there = *side(1).engine;
    const auto space = there.make_counters(1 + static_cast<std::uint32_t>(below(3)));
    if (!space) return may_refuse(space.status());
    EXPECT_EQ(there.counter(space->first), 0U);
    EXPECT_FALSE(there.make_counters(1, space->first)) << "counters of two owners";
    RequestOptions options;
    options.notify = notify_counter(space->first);
    const auto done = finish(*side(0).engine, side(0).engine->write(side(0).other, own_area(0, 8), options));
    if (done && done->status) {
      const Status counted = there.wait_counter(space->first, 1, kEver);
      may_refuse(counted);
      EXPECT_EQ(there.counter(space->first), 1U);
    }
    const Status released = there.release_counters(space->id);
    may_refuse(released);
  }
  // Memory of an engine, and what it has mapped, are gone when it is closed: nobody may touch them then. False: it is
  // late.
  template <class Action>
  bool touch(Action action) {
    const std::shared_lock lock(pair_->touches_mutex);
    if (pair_->over) return false;
    action();
    return true;
  }
  // Memory of the other side for this one's CPUs, where the transport lends it; its owner gets it back.
  void map_theirs() {
    Engine& there = *side(1).engine;
    const auto region = there.allocate(4096, Access::all);
    if (!region) return;
    if (!touch([&] { *static_cast<std::byte*>(region->address) = std::byte{7}; })) return;
    const auto description = there.describe(*region);
    if (description) {
      const auto remote = side(0).engine->import_region(side(0).other, *description);
      const auto mapping = remote ? side(0).engine->map(*remote, kCpu, kEver) : Result<Mapping>(remote.status());
      const ErrorCode code = mapping.status().code();
      EXPECT_TRUE(mapping || code == ErrorCode::unsupported || may_end(code)) << mapping.status().to_string();
      if (mapping) {
        touch([&] { EXPECT_EQ(*static_cast<const std::byte*>(mapping->address), std::byte{7}); });
        const Status unmapped = side(0).engine->unmap(mapping->id);
        EXPECT_TRUE(unmapped || pair_->over) << unmapped.to_string();
      }
      if (remote) (void)side(0).engine->release(*remote);
    }
    const Status status = there.deregister(*region, kEver);
    EXPECT_TRUE(status || status.code() == ErrorCode::closed || status.code() == ErrorCode::revoked)
        << status.to_string();
  }
  void count() {
    RequestOptions options;
    options.notify = notify_counter(5);
    ++pair_->counted_tried;
    const auto done = finish(*side(0).engine, side(0).engine->write(side(0).other, own_area(0, 8), options));
    if (done && done->status) ++pair_->counted_ok;
  }
  // With an event, for which the target has 64 places that somebody must empty.
  void tell() {
    RequestOptions options;
    options.notify = notify_event(9);
    ++pair_->events_tried;
    const auto id = side(0).engine->write(side(0).other, own_area(0, 1 + below(100)), options);
    if (!id) return;
    for (;;) {
      take_events();
      const auto done = side(0).engine->wait(*id, std::chrono::milliseconds(1));
      if (!done && done.status().code() == ErrorCode::timed_out) continue;
      ASSERT_TRUE(done) << done.status().to_string();
      if (done->status) ++pair_->events_ok;
      EXPECT_TRUE(done->status || may_end(done->status.code())) << done->status.to_string();
      return;
    }
  }
  void take_events() {
    std::array<Notification, 8> notifications;
    const std::size_t count = side(1).engine->poll_notifications(notifications);
    for (std::size_t i = 0; i < count; ++i) pair_->events_seen += notifications[i].immediate == 9 ? 1 : 0;
  }
  void ask() {
    Pair::Side& one = side(below(2));
    switch (below(6)) {
      case 0: EXPECT_LE(one.engine->metrics().transfers_in_use, kTransfers + 1024); return;
      case 1: (void)one.engine->explain(one.other); return;
      case 2: (void)one.engine->port_counters(); return;
      case 3: {
        std::array<PeerEvent, 4> events;
        (void)one.engine->poll_peer_events(events);
        return;
      }
      case 4: take_events(); return (void)one.engine->wait_notification(Timeout(10));
      default: {
        Pair::Side& there = side(&one == &side(0) ? 1 : 0);
        const auto again = one.engine->connect(there.engine->address(), kEver);
        EXPECT_TRUE((again && *again == one.other) || pair_->over) << "connected to a peer that is connected";
        (void)one.engine->writable();
        return;
      }
    }
  }

  const std::shared_ptr<Pair> pair_;
  const std::size_t number_;
  std::mt19937_64 random_;
  std::uint64_t place_ = 0;
};

struct Kind {
  const char* transport;
  Progress progress;
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.transport << (kind.progress == Progress::threads ? "_threads" : "_caller");
}

class RandomThreads : public testing::TestWithParam<Kind> {};

std::chrono::milliseconds how_long() {
  if (const char* seconds = std::getenv("FAIRWAY_THREADS_SECONDS"))
    return std::chrono::seconds(std::strtol(seconds, nullptr, 10));
  return at_length() ? std::chrono::seconds(30) : std::chrono::milliseconds(1500);
}

TEST_P(RandomThreads, KeepEveryPromiseUntilTheEnginesAreClosed) {
  using Clock = std::chrono::steady_clock;
  std::optional<StandInDriver> driver;
  if (GetParam().transport == std::string("cuda")) driver.emplace();
  const auto until = Clock::now() + how_long();
  std::random_device truly;
  std::uint64_t seed = truly();
  do {
    SCOPED_TRACE("seed " + std::to_string(seed));
    auto opened = Pair::open(GetParam().transport, GetParam().progress);
    if (!opened && opened.status().code() == ErrorCode::unsupported) GTEST_SKIP() << opened.status().to_string();
    ASSERT_TRUE(opened) << opened.status().to_string();
    const std::shared_ptr<Pair> pair = *opened;
    std::mt19937_64 random(seed);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i)
      threads.emplace_back([pair, i, own = random()] { Actor(pair, i, own).run(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 250));
    {
      const std::unique_lock lock(pair->touches_mutex);
      pair->over = true;
    }
    const std::size_t first = random() % 2;
    if (random() % 3 == 0) (void)pair->sides[first].engine->disconnect(pair->sides[first].other);
    std::thread other;
    if (random() % 2 == 0) other = std::thread([&] { pair->sides[first].engine->close(); });
    pair->sides[first].engine->close();
    pair->sides[1 - first].engine->close();
    if (other.joinable()) other.join();
    for (std::thread& thread : threads) thread.join();

    std::array<Completion, 64> completions;
    while (const std::size_t count = pair->sides[0].engine->poll(completions)) {
      for (std::size_t i = 0; i < count; ++i) ++static_cast<Told*>(completions[i].user_data)->times;
      pair->polled += count;
    }
    EXPECT_EQ(pair->to_poll, pair->polled);
    for (const auto& told : pair->told) EXPECT_EQ(told->times, 1) << "completions of one transfer";
    EXPECT_EQ(pair->sides[0].engine->metrics().transfers_in_use, 0u);
    EXPECT_EQ(pair->sides[1].engine->metrics().transfers_in_use, 0u);
    std::array<Notification, 64> notifications;
    while (const std::size_t count = pair->sides[1].engine->poll_notifications(notifications))
      for (std::size_t i = 0; i < count; ++i) pair->events_seen += notifications[i].immediate == 9 ? 1 : 0;
    EXPECT_GE(pair->events_seen, pair->events_ok);
    EXPECT_LE(pair->events_seen, pair->events_tried);
    const std::uint64_t counted = pair->sides[1].engine->counter(5);
    EXPECT_GE(counted, pair->counted_ok);
    EXPECT_LE(counted, pair->counted_tried);
    ++seed;
  } while (Clock::now() < until && !HasFailure());
}

INSTANTIATE_TEST_SUITE_P(Over, RandomThreads,
                         testing::Values(Kind{"loopback", Progress::threads}, Kind{"loopback", Progress::caller},
                                         Kind{"shm", Progress::threads}, Kind{"shm", Progress::caller},
                                         Kind{"tcp", Progress::threads}, Kind{"tcp", Progress::caller},
                                         Kind{"fabric", Progress::threads}, Kind{"verbs", Progress::threads}),
                         testing::PrintToStringParamName());

#ifndef __SANITIZE_THREAD__  // which takes a GPU's two mappings of a memory for two memories
INSTANTIATE_TEST_SUITE_P(OnGpus, RandomThreads,
                         testing::Values(Kind{"cuda", Progress::threads}, Kind{"cuda", Progress::caller}),
                         testing::PrintToStringParamName());
#endif

}  // namespace
}  // namespace fairway::threads
