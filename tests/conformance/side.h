#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "conformance/buffer.h"
#include "core/runtime.h"
#include "transport/optional_calls.h"
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

// One transport and the worker that owns it, here (own_side.h) or in another process (far_side.h). Claims call it from
// the test's thread, by verbs that say nothing of where the transport runs. Records every event.
class Side {
 public:
  using Make = std::function<Result<std::unique_ptr<Transport>>(transport::RegionTable&, Runtime&)>;
  using Edit = std::function<void(std::vector<std::byte>&)>;
  static constexpr transport::PeerIndex kPeer = 7;

  explicit Side(Runtime& runtime) : runtime_(runtime) {}
  virtual ~Side() = default;
  virtual void start() = 0;
  // The other end, to which exchange bytes are carried. `edit` may change or drop (empty) them on the way.
  void carry_to(Side& other, Edit edit = {});
  void carry_no_more();  // before the other end is destroyed, unless this one is silent by then

  // ---- the test's thread ----
  virtual void connect(Role role) = 0;
  virtual void exchange(std::span<const std::byte> bytes) = 0;
  virtual void disconnect() = 0;
  virtual void close() = 0;
  Memory remember(Buffer& buffer, Access access);
  virtual void revoke(const Memory& memory) = 0;      // in the table alone
  virtual void deregister(const Memory& memory) = 0;  // revoke, then the transport; -> deregistered
  std::uint64_t import(const Memory& memory);         // 0: refused
  virtual void release(std::uint64_t handle) = 0;
  virtual std::size_t post(std::span<const Slice> slices) = 0;  // one call
  bool post_all(std::span<const Slice> slices);                 // until all are taken
  // A small slice within the call, on its worker; nothing: the transport is in another process, or cannot.
  virtual std::optional<transport::AtOnce> move_now(const transport::SmallMove& /*move*/) { return {}; }
  virtual std::optional<transport::AtOnce> send_now(LinkId /*link*/, std::span<const std::byte> /*head*/,
                                                    std::span<const std::byte> /*tail*/) {
    return {};
  }
  virtual void fence(LinkId link) = 0;
  virtual void reconnect(LinkId link) = 0;
  virtual void cancel(transport::SliceToken token) = 0;
  virtual void pause(bool on) = 0;  // while paused it does not poll

  // Whether `done(seen)` came true before the (virtual) time ran out.
  bool wait(const std::function<bool(const std::vector<Seen>&)>& done, Time most = 20 * kSecond);
  void rest(Time time);  // lets time pass
  bool wait_asleep();    // until its worker has nothing to do and has spun enough, however late it comes to that
  std::vector<Seen> seen();
  bool wait_ended(std::size_t slices);                // so many done and failed, all told
  Seen wait_token(transport::SliceToken token);       // its event; kind exchange when none came
  std::vector<UpLink> wait_links(std::size_t count);  // up and not down again, by name
  std::size_t count(EventKind kind);

  virtual std::span<const transport::Device> devices() = 0;
  const transport::Capabilities& can(const UpLink& link) { return devices()[link.device].capabilities; }
  virtual std::uint64_t steps() = 0;  // of its worker so far
  virtual bool asleep() = 0;          // it has nothing to do and has spun enough

 protected:
  // The verbs behind remember() and import(), without a buffer of the test's. With the last copy of `held` the region
  // is revoked and the worker has let go of it.
  struct Kept {
    RegionId region;
    transport::RegisteredMemory registered;
    std::shared_ptr<void> held;
  };
  virtual Kept keep(const Region& memory, const MemorySource& source) = 0;
  virtual std::uint64_t import_keys(const transport::RemoteMemory& memory,
                                    std::span<const std::vector<std::byte>> keys) = 0;
  virtual void hear(
      std::vector<std::byte> bytes) = 0;  // exchange bytes from the other end; any thread, waits for nobody

  virtual void pass() = 0;  // returns once its worker, where it is this process's, has passed a step
  void let_other_pass();    // the other end

  virtual void tell(Seen seen);                      // any one thread
  virtual void carry(std::vector<std::byte> bytes);  // the same
  void news();                                       // wakes who waits

  Runtime& runtime_;
  std::atomic<std::uint32_t> news_{0};

 private:
  std::mutex carry_mutex_;  // guards other_ and edit_
  Side* other_ = nullptr;
  Edit edit_;
  std::mutex mutex_;  // guards log_
  std::vector<Seen> log_;
};

}  // namespace fairway::conformance
