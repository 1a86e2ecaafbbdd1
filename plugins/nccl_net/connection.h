#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "nccl_net/endpoint.h"
#include "nccl_net/spin_lock.h"

namespace fairway::nccl {

class Connection;

// One isend or irecv, from the call until test() has reported it done. Lives in its connection.
struct Request {
  enum class State : std::uint32_t { free, pending, done };
  std::atomic<State> state{State::free};
  Connection* owner = nullptr;
  std::uint32_t sequence = 0;  // irecv: of its group
  std::uint32_t parts = 0;     // number in the group; isend: 1
  std::uint32_t here = 0;      // parts that have arrived, one bit each
  std::array<std::uint64_t, abi::kMostReceives> bytes{};
  RegionId target;                    // isend: the peer's region
  std::shared_ptr<Connection> alive;  // isend: keeps the connection alive while the engine has the transfer
};

// One direction between two ranks for one channel. NCCL calls one end from one thread at a time. Messages arrive on
// whichever thread polls, completions on the thread that drives the engine.
class Connection : public Port, public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Endpoint> endpoint, PeerId peer, PortId other)
      : endpoint_(std::move(endpoint)), peer_(peer), other_(other) {
    for (Request& request : requests_) request.owner = this;
  }

  abi::Code test(Request& request, int* done, int* sizes);
  abi::Code close();
  void on_peer_down(PeerId peer, const Status& reason) override;

  Endpoint& endpoint() { return *endpoint_; }
  [[nodiscard]] PeerId peer() const { return peer_; }
  [[nodiscard]] virtual Access access() const = 0;  // access that peers get to memory registered for this end

 protected:
  void fail(const Status& status);  // keeps the first failure; call without holding a lock
  abi::Code report(const char* doing);
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }

  const std::shared_ptr<Endpoint> endpoint_;
  const PeerId peer_;
  std::array<Request, abi::kMostRequests> requests_;
  SpinLock mutex_;  // guards the members of this class and its two ends that are not atomic
  PortId other_;    // id of the peer's end of the connection

 private:
  virtual void end() {}  // close()'s part for each kind of end
  std::atomic<bool> failed_{false};
  Status failure_;
  bool reported_ = false;
};

// The end that isend is called on. It writes directly into the buffers that the receiver has posted.
class Sender final : public Connection {
 public:
  using Connection::Connection;
  abi::Code send(void* data, std::size_t size, int tag, Memory& memory, Request** request);
  void on_message(const Message& message, PeerId from) override;
  [[nodiscard]] Access access() const override { return Access::none; }

 private:
  static constexpr std::uint32_t kGroups = 64;  // the receiver posts at most kMostRequests groups at once
  static constexpr std::size_t kMostImports = 256;
  struct Group {
    bool here = false;
    std::uint32_t count = 0, used = 0;  // used: one bit per part
    std::array<Place, abi::kMostReceives> places;
  };
  struct Import {
    enum class State : std::uint8_t { asked, ready } state = State::asked;
    RemoteRegion region;
    std::uint32_t in_flight = 0;
    std::uint64_t used = 0;  // time of last use, counted in sends
  };
  struct ByName {
    bool operator()(RegionId a, RegionId b) const {
      return a.slot != b.slot ? a.slot < b.slot : a.generation < b.generation;
    }
  };
  using Imports = std::map<RegionId, Import, ByName>;
  struct Match {
    Group* group = nullptr;
    std::uint32_t sequence = 0, part = 0;
  };

  void on_post(const Message& message);
  Match match(int tag);
  Import* import(RegionId region);  // null: requested, not here yet
  void ask(RegionId region);
  void imported(RegionId region, const Result<RemoteRegion>& found);
  void release(const RemoteRegion& region);
  void evict_import();
  void tell_route(const Extent& extent);
  static void finished(const Completion& completion, void* request);
  void end() override;

  // Once the receiver has closed, the engine's completions decide about sends in flight: that all bytes arrived may
  // become known only later.
  std::atomic<bool> receiver_closed_{false};
  std::array<Group, kGroups> groups_;
  std::uint32_t head_ = 0;  // the oldest group that is not used up
  Imports imports_;
  std::uint64_t sends_ = 0;
};

// The end that irecv is called on.
class Receiver final : public Connection {
 public:
  using Connection::Connection;
  abi::Code receive(int count, void** data, const std::size_t* sizes, const int* tags, void** memory,
                    Request** request);
  void on_message(const Message& message, PeerId from) override;
  [[nodiscard]] Access access() const override { return Access::write; }

 private:
  static void posted(const Completion& completion, void* self);
  std::uint32_t next_ = 0;  // sequence number of the next group
};

}  // namespace fairway::nccl
