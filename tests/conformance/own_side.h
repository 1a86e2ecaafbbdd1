#pragma once

#include <deque>

#include "conformance/side.h"

namespace fairway::conformance {

// A side of this process: its worker polls on an executor and obeys commands.
class OwnSide : public Side, private Stepper {
 public:
  OwnSide(Runtime& runtime, const Make& make);
  ~OwnSide() override { stop(); }
  void start() override;

  void connect(Role role) override;
  void exchange(std::span<const std::byte> bytes) override;
  void disconnect() override;
  void close() override;
  void revoke(const Memory& memory) override { revoke_region(memory.region); }
  void deregister(const Memory& memory) override { deregister_region(memory.region, memory.handle); }
  void release(std::uint64_t handle) override;
  std::size_t post(std::span<const Slice> slices) override;
  std::optional<transport::AtOnce> move_now(const transport::SmallMove& move) override;
  std::optional<transport::AtOnce> send_now(LinkId link, std::span<const std::byte> head,
                                            std::span<const std::byte> tail) override;
  void fence(LinkId link) override;
  void reconnect(LinkId link) override;
  void cancel(transport::SliceToken token) override;
  void pause(bool on) override;
  std::span<const transport::Device> devices() override { return transport_->devices(); }
  std::uint64_t steps() override { return steps_.load(); }
  bool asleep() override { return slept_after_.load() == steps_.load() && steps_.load() != 0; }

 protected:
  Kept keep(const Region& memory, const MemorySource& source) override;
  std::uint64_t import_keys(const transport::RemoteMemory& memory,
                            std::span<const std::vector<std::byte>> keys) override;
  void hear(std::vector<std::byte> bytes) override;
  void pass() override {
    command([](Transport&) {});
  }
  void revoke_region(RegionId region);
  void deregister_region(RegionId region, std::uint64_t handle);
  void stop();  // closes, once; of classes that override tell() or carry(), in their destructor

 private:
  using Command = std::function<void(Transport&)>;
  Time step(Time now) override;
  bool prepare_sleep() override;
  void command(Command what);  // runs it on the worker and waits
  void enqueue(Command what);
  void record(const Event& event);

  struct Lent {
    std::span<const std::byte> bytes;
    std::vector<std::byte> copy;
  };

  transport::RegionTable regions_{64};
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Task> task_;
  std::atomic<Task*> wakes_{nullptr};
  std::mutex mutex_;  // guards commands_
  std::deque<Command> commands_;
  std::atomic<std::uint64_t> steps_{0}, slept_after_{0};  // the latter: the last step before it went to sleep
  std::vector<Lent> lent_;                                // the worker's: by the last poll
  bool paused_ = false;                                   // the worker's
};

}  // namespace fairway::conformance
