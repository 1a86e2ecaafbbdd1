#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "fairway/collectives.h"

#include "collectives/clock.h"
#include "collectives/host/lanes.h"

namespace fairway::collectives {

// Messages between two ranks, by the engine's own send and receive on the caller's memory. Owner: a communicator.
class Messages {
 public:
  enum class Way : std::uint8_t { send, receive };
  struct Message {
    Way way = Way::send;
    void* data = nullptr;  // of a send only read
    std::size_t size_bytes = 0;
    int other = 0;
    std::uint32_t tag = 0;
    Timeout timeout{0};
  };

  // Once `aborted` is true, those that have not ended are taken back.
  Messages(Lanes& lanes, std::string name, const std::atomic<bool>& aborted)
      : lanes_(lanes), name_(std::move(name)), aborted_(aborted) {}
  ~Messages();  // takes back those that have not ended
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  Result<MessageId> start(const Message& message);
  bool test(MessageId id);
  Status wait(MessageId id, std::size_t* received);

 private:
  struct Started {
    Way way;
    int other;
    TransferId transfer;
    Region region;  // none for a message of no bytes
    Time deadline;
    bool ended = false;
    Status status = {};
    std::size_t bytes = 0;
  };

  Status check(const Message& message) const;
  // Waits until it has ended, at most so long. At its deadline it is taken back.
  void look(Started& one, Timeout most);
  void take_back(Started& one);
  void end(Started& one, Status status);
  [[nodiscard]] std::string text(Way way, int other) const;

  Lanes& lanes_;
  const std::string name_;
  const std::atomic<bool>& aborted_;
  std::uint64_t last_ = 0;
  std::unordered_map<std::uint64_t, Started> started_;  // and not collected
};

}  // namespace fairway::collectives
