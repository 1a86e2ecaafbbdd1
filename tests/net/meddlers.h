#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "net/proxy.h"
#include "transport/tcp/frame.h"

namespace fairway::net {

enum class Deed : std::uint8_t { flip, cut, stall };

// Where in the streams the next deed is done, once.
struct Aim {
  Deed deed = Deed::flip;
  bool control = false;      // else a lane
  bool to_listener = true;   // the direction; the near side dials
  std::uint64_t bytes = 0;   // that pass that way before it, over all connections of the kind, from now on
  std::uint8_t mask = 0x01;  // flip: these bits
};

// Aims at a byte, knowing nothing of what it means.
class AtByte final : public Meddler {
 public:
  void arm(const Aim& aim);
  [[nodiscard]] bool done() const { return done_.load(); }

 private:
  Verdict meddle(Piece& piece) override;

  std::mutex mutex_;  // guards the rest
  Aim aim_;
  bool armed_ = false;
  std::atomic<bool> done_{false};
};

// Where in a lane's frames.
struct FrameAim {
  Deed deed = Deed::flip;
  transport::tcp::FrameType type = transport::tcp::FrameType::write;
  std::uint64_t min_payload = 0;  // of the frame
  std::uint64_t byte = 0;         // of the frame, its header of 40 bytes first
  std::uint8_t mask = 0x01;
};

// Aims at a byte of a lane's next frame of a type, in whichever direction it goes. It follows every lane from its first
// byte, so it has to be there when lanes are made.
class InFrame final : public Meddler {
 public:
  void arm(const FrameAim& aim);
  [[nodiscard]] bool done() const { return done_.load(); }

 private:
  struct Stream {
    std::uint64_t skip = 0;  // of the hello or the welcome
    std::array<std::byte, transport::tcp::kHeaderBytes> head{};
    std::uint64_t head_bytes = 0;
    std::uint64_t left = 0;  // of the payload
    std::uint64_t total = 0;
    transport::tcp::FrameType type = transport::tcp::FrameType::write;
  };
  Verdict meddle(Piece& piece) override;
  void learn(Stream& stream);

  std::mutex mutex_;  // guards the rest
  FrameAim aim_;
  bool armed_ = false;
  std::atomic<bool> done_{false};
  std::map<std::pair<std::uint64_t, bool>, Stream> streams_;
};

}  // namespace fairway::net
