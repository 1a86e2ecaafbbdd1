#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/optional_calls.h"
#include "transport/transport.h"

namespace fairway::promises {

// Forwards everything to the transport below. A test overrides what it wants to break. Owned by an engine's worker.
class Relay : public transport::Transport, public transport::FlushesWrites {
 public:
  explicit Relay(std::unique_ptr<transport::Transport> below, std::string name = {})
      : Transport(name.empty() ? below->name() : std::move(name)), below_(std::move(below)) {
    devices_.assign(below_->devices().begin(), below_->devices().end());
  }

  Status connect(transport::PeerIndex peer, transport::Role role) override { return below_->connect(peer, role); }
  void exchange(transport::PeerIndex peer, std::span<const std::byte> bytes) override { below_->exchange(peer, bytes); }
  void disconnect(transport::PeerIndex peer) override { below_->disconnect(peer); }
  Result<transport::RegisteredMemory> register_memory(const Region& memory, const MemorySource& source) override {
    return below_->register_memory(memory, source);
  }
  void deregister(std::uint64_t handle) override { below_->deregister(handle); }
  Result<std::uint64_t> import(transport::PeerIndex peer, const transport::RemoteMemory& memory,
                               std::span<const std::vector<std::byte>> keys) override {
    return below_->import(peer, memory, keys);
  }
  void release(std::uint64_t remote_handle) override { below_->release(remote_handle); }
  transport::Reach reach(transport::LinkId link, std::uint64_t local_handle, std::uint64_t remote_handle,
                         std::string* path) override {
    return below_->reach(link, local_handle, remote_handle, path);
  }
  std::size_t post(std::span<const transport::Slice> slices) override { return below_->post(slices); }
  std::size_t poll(std::span<transport::Event> events, Time now) override { return below_->poll(events, now); }
  Time next_timer() const override { return below_->next_timer(); }
  void fence(transport::LinkId link) override { below_->fence(link); }
  void reconnect(transport::LinkId link) override { below_->reconnect(link); }
  void cancel(transport::SliceToken token) override { below_->cancel(token); }
  Status flush(std::uint64_t handle) override {
    auto* const flushes = dynamic_cast<transport::FlushesWrites*>(below_.get());
    return flushes == nullptr ? Status() : flushes->flush(handle);
  }
  Status attach(Task& task) override { return below_->attach(task); }
  bool prepare_sleep() override { return below_->prepare_sleep(); }
  void close() override { below_->close(); }
  Status untouched() override { return below_->untouched(); }

 protected:
  std::unique_ptr<transport::Transport> below_;
};

}  // namespace fairway::promises
