#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "conformance/buffer.h"
#include "core/runtime.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::conformance {

using transport::Event;
using transport::EventKind;
using transport::LinkId;
using transport::Op;
using transport::Role;
using transport::Shape;
using transport::Slice;
using transport::Transport;

// An event and the bytes that it lent.
struct Seen {
  Event event;
  std::vector<std::byte> bytes;
};

struct UpLink {
  LinkId id;
  transport::DeviceIndex device = 0;
  std::uint64_t name = 0;
};

// Registered memory, as its owner names it. With its last copy the region is revoked and the owner's worker has let go
// of it, so that the buffer may be freed.
struct Memory {
  Buffer* buffer = nullptr;
  RegionId region;
  std::uint64_t handle = 0;
  Access access = Access::none;
  std::vector<std::vector<std::byte>> keys;
  std::shared_ptr<void> held;
};

// One transport and the worker that owns it: it polls on an executor, obeys commands, and records every event. Claims
// call it from the test's thread, by verbs that say nothing of where the transport runs.
class Side final : public Stepper {
 public:
  using Make = std::function<std::unique_ptr<Transport>(transport::RegionTable&, Runtime&)>;
  static constexpr transport::PeerIndex kPeer = 7;

  Side(Runtime& runtime, const Make& make);
  ~Side() override;
  void start();
  // The other end, to which exchange bytes are carried. `edit` may change or drop (empty) them on the way.
  void carry_to(Side& other, std::function<void(std::vector<std::byte>&)> edit = {});
  void carry_no_more();  // once started: before the other end is destroyed

  // ---- the test's thread ----
  void connect(Role role);
  void exchange(std::span<const std::byte> bytes);
  void disconnect();
  void close();
  Memory remember(Buffer& buffer, Access access);
  void revoke(const Memory& memory);           // in the table alone
  void deregister(const Memory& memory);       // revoke, then the transport; -> deregistered
  std::uint64_t import(const Memory& memory);  // 0: refused
  void release(std::uint64_t handle);
  std::size_t post(std::span<const Slice> slices);  // one call
  bool post_all(std::span<const Slice> slices);     // until all are taken
  void fence(LinkId link);
  void reconnect(LinkId link);
  void cancel(transport::SliceToken token);
  void pause(bool on);  // while paused it does not poll

  // Whether `done(seen)` came true before the (virtual) time ran out.
  bool wait(const std::function<bool(const std::vector<Seen>&)>& done, Time most = 20 * kSecond);
  void rest(Time time);  // lets time pass
  bool wait_asleep();    // until its worker has nothing to do and has spun enough, however late it comes to that
  std::vector<Seen> seen();
  const Seen* find_ended(std::vector<Seen>& log, transport::SliceToken token) const;
  bool wait_ended(std::size_t slices);                // so many done and failed, all told
  Seen wait_token(transport::SliceToken token);       // its event; kind exchange when none came
  std::vector<UpLink> wait_links(std::size_t count);  // up and not down again, by name
  std::size_t count(EventKind kind);
  const Status& attached() const { return attached_; }

  std::span<const transport::Device> devices() { return transport_->devices(); }
  const transport::Capabilities& can(const UpLink& link) { return devices()[link.device].capabilities; }
  std::uint64_t steps() const { return steps_.load(); }

 private:
  Time step(Time now) override;
  bool prepare_sleep() override;
  void command(std::function<void(Transport&)> what);  // runs it on the worker and waits
  void enqueue(std::function<void(Transport&)> what);
  void record(const Event& event);

  Runtime& runtime_;
  transport::RegionTable regions_{64};
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Task> task_;
  Status attached_;
  std::atomic<Task*> wakes_{nullptr};
  Side* other_ = nullptr;
  std::function<void(std::vector<std::byte>&)> edit_;
  std::mutex mutex_;  // guards commands_ and log_
  std::deque<std::function<void(Transport&)>> commands_;
  std::vector<Seen> log_;
  std::atomic<std::uint32_t> news_{0};
  std::atomic<std::uint64_t> steps_{0}, slept_after_{0};  // the latter: the last step before it went to sleep
  bool paused_ = false;                                   // the worker's
};

}  // namespace fairway::conformance
