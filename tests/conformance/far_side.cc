#include "conformance/far_side.h"

#include <utility>

#include <gtest/gtest.h>

#include "conformance/far_side_wire.h"

namespace fairway::conformance {

using far::Said;
using far::Verb;
using far::verb;

FarSide::FarSide(Runtime& runtime, const std::string& name) : Side(runtime), arena_(OtherProcess::get().arena()) {
  socket_ = OtherProcess::get().connect();
  send(Parcel().put_text(name));
  reader_ = std::thread([this] { read(); });
}

FarSide::~FarSide() {
  ask(verb(Verb::end));
  reader_.join();
}

void FarSide::send(const Parcel& parcel) {
  const std::lock_guard lock(send_mutex_);
  static_cast<void>(parcel.send(socket_.get()));  // whether the other end is gone, the reader sees
}

Parcel FarSide::ask(const Parcel& question) {
  send(question);
  std::unique_lock lock(mutex_);
  answered_.wait(lock, [this] { return answer_ || gone_; });
  if (!answer_) throw std::runtime_error("the other process is gone");
  return *std::exchange(answer_, std::nullopt);
}

void FarSide::read() {
  while (auto parcel = Parcel::receive(socket_.get())) {
    const auto said = parcel->take<Said>();
    if (said == Said::event) {
#ifdef __SANITIZE_THREAD__
      // What the other process was told by this one's worker comes after what that worker has done. It sees that so.
      let_other_pass();
#endif
      tell(far::take_seen(*parcel));
      news();
    } else if (said == Said::carry) {
      const auto bytes = parcel->take_bytes();
      carry({bytes.begin(), bytes.end()});
    } else {
      const std::lock_guard lock(mutex_);
      answer_ = std::move(*parcel);
      answered_.notify_one();
    }
  }
  const std::lock_guard lock(mutex_);
  gone_ = true;
  answered_.notify_one();
}

void FarSide::start() {
  Parcel answer = ask(verb(Verb::start));
  EXPECT_TRUE(answer.take<bool>()) << "the other process's side failed to start: its words are above";
  devices_.resize(answer.take<std::size_t>());
  for (transport::Device& device : devices_) {
    device.name = answer.take_text();
    device.bytes_per_second = answer.take<std::uint64_t>();
    device.capabilities = answer.take<transport::Capabilities>();
    device.moved_by = answer.take<transport::MovedBy>();
  }
}

void FarSide::connect(Role role) {
  ask(verb(Verb::connect).put(role));
}
void FarSide::exchange(std::span<const std::byte> bytes) {
  ask(verb(Verb::exchange).put_bytes(bytes));
}
void FarSide::hear(std::vector<std::byte> bytes) {
  send(verb(Verb::hear).put_bytes(bytes));
}
void FarSide::disconnect() {
  ask(verb(Verb::disconnect));
}
void FarSide::close() {
  ask(verb(Verb::close));
}
void FarSide::pause(bool on) {
  ask(verb(Verb::pause).put(on));
}

Side::Kept FarSide::keep(const Region& memory, const MemorySource& source) {
  Parcel question = verb(Verb::keep);
  question.put(memory.address - arena_.base()).put(memory.size_bytes).put(memory.kind).put(memory.access);
  Parcel answer = ask(question.put(source.fd == arena_.file()));
  Kept kept;
  kept.region = answer.take<RegionId>();
  kept.registered.handle = answer.take<std::uint64_t>();
  kept.registered.keys = far::take_keys(answer);
  kept.held = std::shared_ptr<void>(
      this, [region = kept.region](void* self) { static_cast<FarSide*>(self)->ask(verb(Verb::let_go).put(region)); });
  return kept;
}

void FarSide::revoke(const Memory& memory) {
  ask(verb(Verb::revoke).put(memory.region));
}
void FarSide::deregister(const Memory& memory) {
  ask(verb(Verb::deregister).put(memory.region).put(memory.handle));
}

std::uint64_t FarSide::import_keys(const transport::RemoteMemory& memory,
                                   std::span<const std::vector<std::byte>> keys) {
  Parcel question = verb(Verb::import_keys).put(memory);
  far::put_keys(question, keys);
  return ask(question).take<std::uint64_t>();
}

void FarSide::release(std::uint64_t handle) {
  ask(verb(Verb::release).put(handle));
}

std::size_t FarSide::post(std::span<const Slice> slices) {
  Parcel question = verb(Verb::post).put(slices.size());
  for (const Slice& slice : slices) far::put_slice(question, slice, arena_);
  return ask(question).take<std::size_t>();
}

void FarSide::fence(LinkId link) {
  ask(verb(Verb::fence).put(link));
}
void FarSide::reconnect(LinkId link) {
  ask(verb(Verb::reconnect).put(link));
}
void FarSide::cancel(transport::SliceToken token) {
  ask(verb(Verb::cancel).put(token));
}
std::uint64_t FarSide::steps() {
  return ask(verb(Verb::steps)).take<std::uint64_t>();
}

bool FarSide::asleep() {
  return ask(verb(Verb::asleep)).take<bool>();
}

}  // namespace fairway::conformance
