#include "collectives/host/lanes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "collectives/host/choose.h"

namespace fairway::collectives {
namespace {

constexpr Timeout kHeld{1'000};  // a zone that others have mapped
// How long a rank with a core of its own polls for what a peer stores. A peer that works on all slots of a pair takes
// some 50 us a piece, and a rank that it has to wake costs both more than that: 8 MiB among two take three times as
// long with 20 us.
constexpr Timeout kMappedSpin{200};

// The core has nothing else to do for some 40 cycles.
void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

Lanes::Lanes(Engine& engine, std::vector<Member> members, int rank, std::uint32_t slot_bytes,
             std::uint32_t first_immediate)
    : engine_(engine),
      members_(std::move(members)),
      rank_(rank),
      slot_bytes_(slot_bytes),
      first_immediate_(first_immediate),
      lanes_(members_.size()),
      pairs_(members_.size()) {}

Lanes::~Lanes() {
  (void)close(Clock::now() + std::chrono::seconds(1));
}

Status Lanes::open(const std::string& name) {
  for (std::uint32_t i = 0; i < immediates(size()); ++i) baseline_.push_back(engine_.counter(first_immediate_ + i));
  auto zone = engine_.allocate(zone_bytes(), Access::read | Access::write);
  if (!zone) return zone.status().with_context("the communicator's slots");
  zone_ = *zone;
  words_ = &(new (zone_.address) ZoneHead)->words;
  words_->rank = static_cast<std::uint32_t>(rank_);
  words_->size = static_cast<std::uint32_t>(size());
  words_->slot_bytes = slot_bytes_;
  words_->first_immediate = first_immediate_;
  tell_host(engine_, *words_);
  words_->magic = kMagic;
  auto stage =
      engine_.allocate(kOutgoing * (kHeaderBytes + slot_bytes_) + sizeof(Words) * members_.size(), Access::none);
  if (!stage) return stage.status().with_context("the communicator's buffers");
  stage_ = *stage;
  return size() == 1 ? Status() : engine_.publish(name, zone_);
}

void Lanes::pause(Timeout time) {
  (void)engine_.wait_counter(first_immediate_, ~std::uint64_t{0}, time);
}

Status Lanes::meet(int peer, const std::string& name, Time deadline, Words& words,
                   const std::function<Status()>& look) {
  Lane& lane = lanes_[static_cast<std::size_t>(peer)];
  const Member& member = members_[static_cast<std::size_t>(peer)];
  Timeout slice = std::chrono::milliseconds(10);
  auto zone = engine_.lookup(member.peer, name, std::min(slice, until(deadline)));
  while (!zone && zone.status().code() == ErrorCode::timed_out && until(deadline).count() > 0) {
    if (Status status = look(); !status) return status;
    slice = std::min<Timeout>(2 * slice, std::chrono::milliseconds(400));
    zone = engine_.lookup(member.peer, name, std::min(slice, until(deadline)));
  }
  if (!zone) {
    if (zone.status().code() != ErrorCode::timed_out) return zone.status().with_context(member.name);
    return {ErrorCode::timed_out, fmt::format("{} has not joined the communicator \"{}\" in time", member.name, name)};
  }
  lane.zone = *zone;
  for (ask(peer); lane.waits_to_ask && until(deadline).count() > 0; ask(peer)) pause(Timeout{1'000});
  Status status;
  if (!read(peer, words, status, until(deadline)))
    return {ErrorCode::timed_out, fmt::format("{} has joined, but does not answer in time", member.name)};
  if (!status) return status.with_context(member.name);
  if (words.magic != kMagic)
    return {ErrorCode::version_mismatch, fmt::format("{} has another version of the collectives", member.name)};
  if (words.rank != static_cast<std::uint32_t>(peer) || words.size != static_cast<std::uint32_t>(size()))
    return {ErrorCode::invalid_argument, fmt::format("{} says that it is rank {} of {}, and not rank {} of {}",
                                                     member.name, words.rank, words.size, peer, size())};
  if (words.slot_bytes != slot_bytes_ || lane.zone.size_bytes != zone_.size_bytes)
    return {ErrorCode::invalid_argument, fmt::format("{} has slot_bytes {}, this rank {}: use one value", member.name,
                                                     words.slot_bytes, slot_bytes_)};
  lane.first_immediate = words.first_immediate;
  return {};
}

void Lanes::flush(Time deadline) {
  int peer = -1;
  for (Outgoing& one : outgoing_) {
    if (!one.transfer) continue;
    if (const auto done = engine_.wait(one.transfer, until(deadline)); done) (void)finished(one, *done, peer);
  }
}

void Lanes::forget() {
  words_ = &forgotten_;
  mapped_ = 0;
  pairs_.assign(pairs_.size(), {});
  touched_.clear();
}

Status Lanes::close(Time deadline) {
  flush(deadline);
  // The others unmap this rank's zone when they leave, which may be much later: the engine waits for that, not the
  // call.
  const bool held = any_mapped();
  unmap_all();
  Status status;
  for (Region* region : {&stage_, &zone_}) {
    if (!region->id) continue;
    const Timeout most = held && region == &zone_ ? kHeld : std::max(until(deadline), Timeout{10'000});
    if (Status ended = engine_.deregister(*region, most); !ended) status = ended;
    region->id = {};
  }
  // Cancelled by the end of their memory.
  for (Outgoing& one : outgoing_)
    if (one.transfer) (void)engine_.wait(std::exchange(one.transfer, {}), Timeout{0});
  in_flight_ = 0;
  for (Lane& lane : lanes_) {
    if (lane.asked) (void)engine_.wait(std::exchange(lane.asked, {}), Timeout{0});
    if (lane.zone.id) (void)engine_.release(std::exchange(lane.zone, {}));
  }
  words_ = nullptr;
  return status;
}

Result<Header> Lanes::header_of(int peer) {
  Header header;
  if (is_mapped(peer)) {  // what the sender says of the calls that it was in of late
    const Front& front = pair(peer).front();
    for (const HeaderWords& call : their_head(peer).calls) {
      HeaderWords words;
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = __atomic_load_n(&call[i], __ATOMIC_RELAXED);
      header = std::bit_cast<Header>(words);
      header.of = front.of;
      if (digest_of(header) == front.digest) return header;
    }
    return Status(ErrorCode::invalid_argument,
                  fmt::format("{} sent a message of another call, which it has left since", name_of(peer)));
  }
  std::memcpy(&header, payload_by_engine(peer) - kHeaderBytes, kHeaderBytes);
  if (header.bytes > slot_bytes_)
    return Status(ErrorCode::protocol_error, fmt::format("{} sent a message of {} bytes into a slot of {}",
                                                         name_of(peer), header.bytes, slot_bytes_));
  return header;
}

bool Lanes::ready(const Blocked& blocked) {
  switch (blocked.on) {
    case Blocked::On::message: return pair(blocked.peer).has_message();
    case Blocked::On::slot: return pair(blocked.peer).has_room();
    case Blocked::On::counter: return engine_.counter(blocked.immediate) >= blocked.at_least;
    case Blocked::On::nothing:
    case Blocked::On::transfer: break;
  }
  return true;
}

bool Lanes::comes_at_once(const Blocked& blocked) {
  constexpr int kLooks = 64;
  if (!blocked.watches_memory() || shares_cores_) return false;
  for (int i = 0; i < kLooks; ++i) {
    if (ready(blocked)) return true;
    pause_core();
  }
  return false;
}

// Where the cores have other work spins fail, and soon only one wait of many tries. What the engine brings is looked
// for after each of its steps, what a peer stores much more often.
bool Lanes::came_while_spinning(const Blocked& blocked, Timeout most) {
  constexpr int kSure = 8;
  constexpr unsigned kTry = 16;
  if (spin_.count() == 0 || (worth_ <= 0 && ++skipped_ % kTry != 0)) return false;
  const bool memory = blocked.watches_memory();
  if (memory && !shares_cores_ && crowd_.leaves()) return false;
  const int looks = !memory ? 1 : shares_cores_ ? 4 : 32;
  const Time end = Clock::now() + std::min(memory && !shares_cores_ ? kMappedSpin : spin_, most);
  do {
    for (int i = 0; i < 4; ++i) {
      for (int look = 0; look < looks; ++look) {
        if (shares_cores_) std::this_thread::yield();  // to a rank that has something to do
        if (!memory) (void)engine_.poll({});
        if (ready(blocked)) {
          worth_ = std::min(kSure, worth_ + 1);
          return true;
        }
        if (!shares_cores_ && memory) pause_core();
      }
      if (memory) (void)engine_.poll({});
      if (memory) crowd_.yield();
    }
  } while (Clock::now() < end);
  worth_ = std::max(0, worth_ - 2);
  return false;
}

Status Lanes::wait(const Blocked& blocked, Timeout most, int& peer) {
  if (blocked.waits_for_peer()) {
    if (came_while_spinning(blocked, most)) return {};
    if (blocked.watches_memory()) return sleep(blocked, most);
    const Status status = engine_.wait_counter(blocked.immediate, blocked.at_least, most);
    return status || status.code() == ErrorCode::timed_out ? Status() : status;
  }
  if (!blocked.transfer) {  // the engine is full of others' requests
    const Status status = engine_.wait_counter(first_immediate_, ~std::uint64_t{0}, Timeout{100});
    return status || status.code() == ErrorCode::timed_out ? Status() : status;
  }
  for (Outgoing& one : outgoing_) {
    if (one.transfer != blocked.transfer) continue;
    const auto done = engine_.wait(one.transfer, most);
    if (done) return finished(one, *done, peer);
    return done.status().code() == ErrorCode::timed_out ? Status() : done.status();
  }
  return {};
}

void Lanes::ask(int peer) {
  Lane& lane = lanes_[static_cast<std::size_t>(peer)];
  if (lane.asked) return;
  const std::uint64_t at = kOutgoing * (kHeaderBytes + slot_bytes_) + static_cast<std::uint64_t>(peer) * sizeof(Words);
  const auto id = engine_.read(members_[static_cast<std::size_t>(peer)].peer,
                               Extent{{stage_.id, at, sizeof(Words)}, {lane.zone.id, 0}});
  lane.waits_to_ask = !id && id.status().code() == ErrorCode::queue_full;
  if (lane.waits_to_ask) all_asked_ = false;
  lane.answered = !id && !lane.waits_to_ask;
  lane.answer = id.status();
  if (id) lane.asked = *id;
}

void Lanes::ask_rest(Timeout most) {
  Words words;
  Status status;
  for (const Time end = after(Clock::now(), most); !all_asked_ && Clock::now() < end;) {
    pause(Timeout{100});  // in which answers come
    for (int peer = 0; peer < size(); ++peer)
      if (lane(peer).asked) (void)read(peer, words, status);
    all_asked_ = true;
    for (int peer = 0; peer < size(); ++peer)
      if (lane(peer).waits_to_ask) ask(peer);
  }
}

bool Lanes::read(int peer, Words& out, Status& status, Timeout most) {
  Lane& lane = lanes_[static_cast<std::size_t>(peer)];
  if (lane.asked) {
    const auto done = engine_.wait(lane.asked, most);
    if (!done && done.status().code() == ErrorCode::timed_out) return false;
    lane.answered = true;
    lane.answer = done ? done->status : done.status();
    lane.asked = {};
  }
  if (!lane.answered) return false;
  const std::uint64_t at = kOutgoing * (kHeaderBytes + slot_bytes_) + static_cast<std::uint64_t>(peer) * sizeof(Words);
  std::memcpy(&out, stage_.address + at, sizeof out);
  status = lane.answer;
  return true;
}

// The mapped way: ranks of one host store into each other's zones.

bool Lanes::map(const std::vector<int>& peers, Time deadline) {
  for (const int peer : peers) {
    const auto mapping = engine_.map(lane(peer).zone, kCpu, until(deadline));
    const bool whole = mapping && mapping->size_bytes >= zone_bytes() && includes(mapping->access, Access::write);
    if (mapping) lane(peer).mapping = *mapping;
    if (!whole) {
      unmap_all();
      return false;
    }
  }
  return true;
}

void Lanes::unmap_all() {
  mapped_ = 0;
  pairs_.assign(pairs_.size(), {});
  for (Lane& one : lanes_) {
    if (one.mapping.id) (void)engine_.unmap(one.mapping.id);
    one.mapping = {};
  }
}

void Lanes::use_mapped() {
  for (int peer = 0; peer < size(); ++peer) {
    const Lane& one = lane(peer);
    if (!one.mapping.id) continue;
    pair(peer) = MappedPair(zone_.address + block_at(place(peer, rank_)),
                            one.mapping.address + block_at(place(rank_, peer)), stride(), one.sent, one.taken);
    ++mapped_;
    if (owes_ == peer) owes_ = -1;
  }
}

void Lanes::enter(const Header& call) {
  if (!any_mapped()) return;
  call_digest_ = digest_of(call);
  HeaderWords& words = reinterpret_cast<ZoneHead*>(zone_.address)->calls[call.operation % kCalls];
  const auto own = std::bit_cast<HeaderWords>(call);
  for (std::size_t i = 0; i < words.size(); ++i) tell(words[i], own[i]);
}

void Lanes::wake_touched() {
  SleepWord::published();
  std::erase_if(touched_, [this](int peer) {
    Lane& one = lane(peer);
    one.owes_bell = one.owes_bell || their_head(peer).sleep.claim(static_cast<std::uint32_t>(rank_));
    if (one.owes_bell && (!can_ring() || ring(peer).code() == ErrorCode::queue_full)) return false;
    one.owes_bell = one.touched = false;
    return true;
  });
}

// Bells that the engine has done are collected when all places are taken. A closed engine says so in wait().
bool Lanes::can_ring() {
  int peer = -1;
  if (free_outgoing() == nullptr) (void)collect(peer);
  return free_outgoing() != nullptr;
}

Status Lanes::sleep(const Blocked& blocked, Timeout most) {
  const std::uint32_t bell = own_bell(blocked.peer);
  const std::uint64_t rung = engine_.counter(bell);
  SleepWord& word = reinterpret_cast<ZoneHead*>(zone_.address)->sleep;
  word.announce(static_cast<std::uint32_t>(blocked.peer));
  const Status status = ready(blocked) ? Status() : engine_.wait_counter(bell, rung + 1, most);
  word.awake();
  return status || status.code() == ErrorCode::timed_out ? Status() : status;
}

}  // namespace fairway::collectives
