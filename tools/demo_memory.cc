#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fairway/fairway.h"

#include "demo.h"

namespace fairway::tool {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

struct Times {
  double p50 = 0;
  double p99 = 0;
};

Times summarize(std::vector<double>& samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples[samples.size() * 99 / 100]};
}

// Differs at every position and between rounds, so that a byte at the wrong place or of an earlier round shows.
void fill(std::span<std::byte> bytes, std::uint64_t round) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>((i * 131 + (i >> 8) * 29 + round * 197) >> 1);
}

struct Pair {
  Engine& near;
  PeerId peer;
  Region mine;
  RemoteRegion theirs;
};

// One transfer, from the call until wait() has its completion.
Status once(const Pair& pair, bool read, std::uint64_t length) {
  const Extent extent{{pair.mine.id, 0, length}, {pair.theirs.id, 0}};
  const auto id = read ? pair.near.read(pair.peer, extent) : pair.near.write(pair.peer, extent);
  if (!id) return id.status();
  const auto completion = pair.near.wait(*id, std::chrono::seconds(10));
  return completion ? completion->status : completion.status();
}

struct Row {
  Times write, read;
  double memcpy_p50 = 0;
};

Result<Row> measure(const Pair& pair, std::span<std::byte> near, std::span<std::byte> far, std::uint64_t length) {
  const std::size_t rounds = length >= 16u << 20 ? 8 : length >= 1u << 20 ? 40 : 300;
  std::vector<double> write;
  std::vector<double> read;
  std::vector<double> copy;
  for (std::size_t round = 0; round < rounds; ++round) {
    const bool verify = round % std::max<std::size_t>(rounds / 8, 1) == 0;
    if (verify) fill(near.first(length), round);
    auto start = Clock::now();
    if (Status status = once(pair, false, length); !status) return status;
    write.push_back(microseconds(Clock::now() - start));
    if (verify && std::memcmp(near.data(), far.data(), length) != 0)
      return Status(ErrorCode::checksum_mismatch, fmt::format("a write of {} bytes left other bytes", length));
    if (verify) fill(far.first(length), round + 1000);
    start = Clock::now();
    if (Status status = once(pair, true, length); !status) return status;
    read.push_back(microseconds(Clock::now() - start));
    if (verify && std::memcmp(near.data(), far.data(), length) != 0)
      return Status(ErrorCode::checksum_mismatch, fmt::format("a read of {} bytes brought other bytes", length));
    start = Clock::now();
    std::memcpy(far.data(), near.data(), length);
    copy.push_back(microseconds(Clock::now() - start));
  }
  return Row{summarize(write), summarize(read), summarize(copy).p50};
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 1u << 20) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1u << 10) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

}  // namespace

Status demo_memory(Tool& tool) {
  constexpr std::uint64_t kLargest = 16u << 20;
  EngineOptions options;
  options.loopback = make_loopback();
  options.name = "near";
  auto near = Engine::open(options);
  options.name = "far";
  auto far = Engine::open(options);
  if (!near || !far) return near ? far.status() : near.status();
  const auto peer = near->connect(far->address());
  if (!peer) return peer.status();
  const auto mine = near->allocate(kLargest, Access::none);
  const auto target = far->allocate(kLargest, Access::read | Access::write);
  if (!mine || !target) return mine ? target.status() : mine.status();
  if (Status status = far->publish("target", *target); !status) return status;
  const auto theirs = near->lookup(*peer, "target");
  if (!theirs) return theirs.status();

  const Pair pair{*near, *peer, *mine, *theirs};
  Request request;
  request.peer = *peer;
  request.layout = Extent{{mine->id, 0, kLargest}, {theirs->id, 0}};
  if (const auto plan = near->explain(request)) tool.print("Two engines of this process. " + plan->text());
  tool.print(fmt::format("\n{:>8} {:>13} {:>9} {:>13} {:>9} {:>11} {:>11} {:>11}\n", "size", "write p50 us", "p99 us",
                         "read p50 us", "p99 us", "write GB/s", "read GB/s", "memcpy GB/s"));
  for (std::uint64_t length = 8; length <= kLargest; length *= 8) {
    auto row = measure(pair, {mine->address, kLargest}, {target->address, kLargest}, length);
    if (!row) return row.status();
    const auto rate = [&](double us) { return static_cast<double>(length) / us / 1e3; };
    tool.print(fmt::format("{:>8} {:>13.1f} {:>9.1f} {:>13.1f} {:>9.1f} {:>11.2f} {:>11.2f} {:>11.2f}\n",
                           size_text(length), row->write.p50, row->write.p99, row->read.p50, row->read.p99,
                           rate(row->write.p50), rate(row->read.p50), rate(row->memcpy_p50)));
  }
  tool.print(
      "Latency is from the call to its completion, worker thread and caller awake or asleep as the machine has it.\n");
  return {};
}

}  // namespace fairway::tool
