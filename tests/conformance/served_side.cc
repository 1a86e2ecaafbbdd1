#include <map>
#include <utility>

#include <gtest/gtest.h>

#include "conformance/far_side.h"
#include "conformance/far_side_wire.h"
#include "conformance/own_side.h"
#include "sys/system_runtime.h"

// The other process's end of a FarSide: the real side, obeying what comes through the socket.
namespace fairway::conformance {
namespace {

using far::Said;
using far::Verb;

std::map<std::string, Side::Make>& offers() {
  static std::map<std::string, Side::Make> all;
  return all;
}

// Worlds follow each other and use the same memory again: what the threads of one did comes before what those of the
// next do.
void come_after_the_ones_before() {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
}

class ServedSide final : public OwnSide {
 public:
  ServedSide(Runtime& runtime, const Make& make, int socket, Arena& arena)
      : OwnSide(runtime, make), socket_(socket), arena_(arena) {}
  ~ServedSide() override { end(); }

  // False: it was the last.
  bool obey(Parcel& question) {
    const auto what = question.take<Verb>();
    if (what == Verb::hear) {
      const auto bytes = question.take_bytes();
      hear({bytes.begin(), bytes.end()});
      return true;
    }
    if (what == Verb::end) {
      end();
      come_after_the_ones_before();
    }
    Parcel answer;
    answer.put(Said::answer);
    act(what, question, answer);
    send(answer);
    return what != Verb::end;
  }

 private:
  void act(Verb what, Parcel& question, Parcel& answer) {
    switch (what) {
      case Verb::start: return begin(answer);
      case Verb::connect: return connect(question.take<Role>());
      case Verb::exchange: return exchange(question.take_bytes());
      case Verb::disconnect: return disconnect();
      case Verb::close: return close();
      case Verb::keep: return keep_memory(question, answer);
      case Verb::let_go: held_.erase(question.take<RegionId>()); return;
      case Verb::revoke: return revoke_region(question.take<RegionId>());
      case Verb::deregister: {
        const auto region = question.take<RegionId>();
        return deregister_region(region, question.take<std::uint64_t>());
      }
      case Verb::import_keys: {
        const auto memory = question.take<transport::RemoteMemory>();
        const auto keys = far::take_keys(question);
        answer.put(import_keys(memory, keys));
        return;
      }
      case Verb::release: return release(question.take<std::uint64_t>());
      case Verb::post: {
        std::vector<Slice> slices(question.take<std::size_t>());
        for (Slice& slice : slices) slice = far::take_slice(question, arena_, pointed_to_);
        answer.put(post(slices));
        return;
      }
      case Verb::fence: return fence(question.take<LinkId>());
      case Verb::reconnect: return reconnect(question.take<LinkId>());
      case Verb::cancel: return cancel(question.take<transport::SliceToken>());
      case Verb::pause: return pause(question.take<bool>());
      case Verb::steps: answer.put(steps()); return;
      case Verb::asleep: answer.put(asleep()); return;
      case Verb::hear:
      case Verb::end: return;
    }
  }

  void end() {
    held_.clear();  // while there is a worker to let go of it
    stop();
  }

  void begin(Parcel& answer) {
    start();
    answer.put(!testing::Test::HasFailure()).put(devices().size());
    for (const transport::Device& device : devices())
      answer.put_text(device.name).put(device.bytes_per_second).put(device.capabilities).put(device.moved_by);
  }

  void keep_memory(Parcel& question, Parcel& answer) {
    Region memory;
    MemorySource source;
    const auto at = question.take<std::ptrdiff_t>();
    memory.address = arena_.base() + at;
    memory.size_bytes = question.take<std::uint64_t>();
    memory.kind = question.take<MemoryKind>();
    memory.access = question.take<Access>();
    if (question.take<bool>()) {
      source.fd = arena_.file();
      source.fd_offset = static_cast<std::uint64_t>(at);
    }
    Kept kept = keep(memory, source);
    answer.put(kept.region).put(kept.registered.handle);
    far::put_keys(answer, kept.registered.keys);
    held_[kept.region] = std::move(kept.held);
  }

  void tell(Seen seen) override {
    Parcel parcel;
    parcel.put(Said::event);
    far::put_seen(parcel, seen);
    send(parcel);
  }
  void carry(std::vector<std::byte> bytes) override { send(Parcel().put(Said::carry).put_bytes(bytes)); }
  void send(const Parcel& parcel) {
    const std::lock_guard lock(mutex_);
    static_cast<void>(parcel.send(socket_));
  }

  const int socket_;
  Arena& arena_;
  std::mutex mutex_;  // guards what goes through socket_
  std::map<RegionId, std::shared_ptr<void>> held_;
  std::deque<std::vector<std::byte>> pointed_to_;
};

}  // namespace

void FarSide::offer(const std::string& name, const Make& make) {
  offers()[name] = make;
}

void serve(sys::Fd socket, Arena& arena) {
  auto name = Parcel::receive(socket.get());
  if (!name) return;
  come_after_the_ones_before();
  sys::SystemRuntime system;
  Runtime runtime = system.runtime();
  ServedSide side(runtime, offers().at(name->take_text()), socket.get(), arena);
  while (auto question = Parcel::receive(socket.get()))
    if (!side.obey(*question)) return;
}

}  // namespace fairway::conformance
