#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "nccl_net/endpoint.h"
#include "nccl_net/short_lock.h"

namespace fairway::nccl {

class Connection;

// One isend or irecv of NCCL's, until test() has told that it is done. Lives in its connection.
struct Request {
  enum class State : std::uint32_t { free, pending, done };
  std::atomic<State> state{State::free};
  Connection* owner = nullptr;
  std::uint32_t sequence = 0;  // irecv: of its group
  std::uint32_t parts = 0;     // of the group; isend: 1
  std::uint32_t here = 0;      // bit by part
  std::array<std::uint64_t, abi::kMostReceives> bytes{};
  RegionId target;                    // isend: the peer's
  std::shared_ptr<Connection> alive;  // isend: while the engine has it
};

// One direction between two ranks for one channel. NCCL calls one end from one thread at a time; messages come from
// whichever thread pumps, completions from the engine's.
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
  [[nodiscard]] virtual Access access() const = 0;  // what peers may do with memory registered for this end

 protected:
  void fail(const Status& status);  // the first one counts; under no lock
  abi::Code report(const char* doing);
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }

  const std::shared_ptr<Endpoint> endpoint_;
  const PeerId peer_;
  std::array<Request, abi::kMostRequests> requests_;
  ShortLock mutex_;  // guards what is not atomic here and in the two ends
  PortId other_;     // the other end's

 private:
  virtual void end() {}  // close()'s part that is its own
  std::atomic<bool> failed_{false};
  Status failure_;
  bool reported_ = false;
};

// The end that isend is called on. It writes straight into the places that the other end has posted.
class Sender final : public Connection {
 public:
  using Connection::Connection;
  abi::Code send(void* data, std::size_t size, int tag, Memory& memory, Request** request);
  void on_message(const Message& message, PeerId from) override;
  [[nodiscard]] Access access() const override { return Access::none; }

 private:
  static constexpr std::uint32_t kGroups = 64;  // at least kMostRequests are posted at once
  static constexpr std::size_t kMostImports = 256;
  struct Group {
    bool here = false;
    std::uint32_t count = 0, used = 0;  // used: bit by part
    std::array<Place, abi::kMostReceives> places;
  };
  struct Import {
    enum class State : std::uint8_t { asked, ready } state = State::asked;
    RemoteRegion region;
    std::uint32_t in_flight = 0;
    std::uint64_t used = 0;  // when, in sends
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
  Import* import(RegionId region);  // null: asked for, not here yet
  void ask(RegionId region);
  void imported(RegionId region, const Result<RemoteRegion>& found);
  void release(const RemoteRegion& region);
  void make_room();
  void tell_route(const Extent& extent);
  static void finished(const Completion& completion, void* request);
  void end() override;

  // Of what is on its way then the engine says what became of it: that all of it arrived may be known only later.
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
  std::uint32_t next_ = 0;  // group
};

}  // namespace fairway::nccl
