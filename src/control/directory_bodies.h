#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "control/frame.h"
#include "core/bytes.h"

// The bodies of the frames between an engine and its directory server. The rules of bodies.h apply.
namespace fairway::control {

struct Publish {
  static constexpr FrameType kType = FrameType::publish;
  std::uint64_t id = 0;
  std::string record;

  void write(ByteWriter& out) const;
  static Result<Publish> read(std::span<const std::byte> body);
};

struct Withdraw {
  static constexpr FrameType kType = FrameType::withdraw;
  std::uint64_t id = 0;
  std::string name;
  std::string started;

  void write(ByteWriter& out) const;
  static Result<Withdraw> read(std::span<const std::byte> body);
};

struct Lookup {
  static constexpr FrameType kType = FrameType::lookup;
  std::uint64_t id = 0;
  std::string name;

  void write(ByteWriter& out) const;
  static Result<Lookup> read(std::span<const std::byte> body);
};

// Wire values.
enum class Verdict : std::uint8_t { done = 0, absent = 1, taken = 2, refused = 3 };

struct Answer {
  static constexpr FrameType kType = FrameType::answer;
  std::uint64_t id = 0;
  Verdict verdict = Verdict::done;
  std::string bytes;  // the record, or the reason for refusing

  void write(ByteWriter& out) const;
  static Result<Answer> read(std::span<const std::byte> body);
};

}  // namespace fairway::control
