#pragma once

#include <condition_variable>
#include <string>
#include <thread>

#include "conformance/other_process.h"
#include "conformance/side.h"

namespace fairway::conformance {

// A side of the other process: each verb goes there and waits for its answer, each event comes from there.
class FarSide final : public Side {
 public:
  // What `name` makes in the other process; said before that one is forked, so while kinds are made.
  static void offer(const std::string& name, const Make& make);

  FarSide(Runtime& runtime, const std::string& name);
  ~FarSide() override;
  void start() override;

  void connect(Role role) override;
  void exchange(std::span<const std::byte> bytes) override;
  void disconnect() override;
  void close() override;
  void revoke(const Memory& memory) override;
  void deregister(const Memory& memory) override;
  void release(std::uint64_t handle) override;
  std::size_t post(std::span<const Slice> slices) override;
  void fence(LinkId link) override;
  void reconnect(LinkId link) override;
  void cancel(transport::SliceToken token) override;
  void pause(bool on) override;
  std::span<const transport::Device> devices() override { return devices_; }
  std::uint64_t steps() override;
  bool asleep() override;

 private:
  Kept keep(const Region& memory, const MemorySource& source) override;
  std::uint64_t import_keys(const transport::RemoteMemory& memory,
                            std::span<const std::vector<std::byte>> keys) override;
  void hear(std::vector<std::byte> bytes) override;
  void pass() override {}
  Parcel ask(const Parcel& question);  // its answer; one question at a time
  void send(const Parcel& parcel);
  void read();  // what comes, on a thread of its own

  sys::Fd socket_;
  Arena& arena_;
  std::vector<transport::Device> devices_;
  std::mutex send_mutex_;  // guards what goes through socket_
  std::mutex mutex_;       // guards answer_ and gone_
  std::condition_variable answered_;
  std::optional<Parcel> answer_;
  bool gone_ = false;
  std::thread reader_;
};

// The other process's end of one FarSide, until that one says so or is gone.
void serve(sys::Fd socket, Arena& arena);

}  // namespace fairway::conformance
