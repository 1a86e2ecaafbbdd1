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

struct Path {
  Engine& engine;
  PeerId peer;
  Region out, back;  // ours: what is written, and what is read
  RemoteRegion target;
};

// One transfer, from the call until wait() has its completion.
Status once(const Path& path, bool read, std::uint64_t length) {
  const Extent extent{{read ? path.back.id : path.out.id, 0, length}, {path.target.id, 0}};
  const auto id = read ? path.engine.read(path.peer, extent) : path.engine.write(path.peer, extent);
  if (!id) return id.status();
  const auto completion = path.engine.wait(*id, std::chrono::seconds(10));
  return completion ? completion->status : completion.status();
}

struct Row {
  Times write, read;
  double memcpy_p50 = 0;
};

Result<Row> measure(const Path& path, std::uint64_t length) {
  const std::size_t rounds = length >= 16u << 20 ? 8 : length >= 1u << 20 ? 40 : 300;
  std::vector<double> write;
  std::vector<double> read;
  std::vector<double> copy;
  for (std::size_t round = 0; round < rounds; ++round) {
    const bool verify = round % std::max<std::size_t>(rounds / 8, 1) == 0;
    if (verify) fill({path.out.address, length}, round);
    auto start = Clock::now();
    if (Status status = once(path, false, length); !status) return status;
    write.push_back(microseconds(Clock::now() - start));
    start = Clock::now();
    if (Status status = once(path, true, length); !status) return status;
    read.push_back(microseconds(Clock::now() - start));
    if (verify && std::memcmp(path.out.address, path.back.address, length) != 0)
      return Status(ErrorCode::checksum_mismatch,
                    fmt::format("{} bytes did not come back as they were written", length));
    start = Clock::now();
    std::memcpy(path.back.address, path.out.address, length);
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

Status demo_path(Tool& tool, Engine& engine, PeerId peer) {
  const auto out = engine.allocate(kDemoBytes, Access::none);
  const auto back = engine.allocate(kDemoBytes, Access::none);
  if (!out || !back) return out ? back.status() : out.status();
  const auto target = engine.lookup(peer, "target");
  if (!target) return target.status();
  const Path path{engine, peer, *out, *back, *target};
  Request request;
  request.peer = peer;
  request.layout = Extent{{out->id, 0, kDemoBytes}, {target->id, 0}};
  if (Status status = once(path, false, 1); !status) return status;  // the peer's memory is known from now on
  if (const auto plan = engine.explain(request)) tool.print(plan->text());
  tool.print(fmt::format("\n{:>8} {:>13} {:>9} {:>13} {:>9} {:>11} {:>11} {:>11}\n", "size", "write p50 us", "p99 us",
                         "read p50 us", "p99 us", "write GB/s", "read GB/s", "memcpy GB/s"));
  for (std::uint64_t length = 8; length <= kDemoBytes; length *= 8) {
    auto row = measure(path, length);
    if (!row) return row.status();
    const auto rate = [&](double us) { return static_cast<double>(length) / us / 1e3; };
    tool.print(fmt::format("{:>8} {:>13.1f} {:>9.1f} {:>13.1f} {:>9.1f} {:>11.2f} {:>11.2f} {:>11.2f}\n",
                           size_text(length), row->write.p50, row->write.p99, row->read.p50, row->read.p99,
                           rate(row->write.p50), rate(row->read.p50), rate(row->memcpy_p50)));
  }
  return {};
}

Status demo_memory(Tool& tool) {
  EngineOptions options;
  options.loopback = make_loopback();
  options.transports = {"loopback"};
  options.name = "near";
  auto near = Engine::open(options);
  options.name = "far";
  auto far = Engine::open(options);
  if (!near || !far) return near ? far.status() : near.status();
  const auto peer = near->connect(far->address());
  if (!peer) return peer.status();
  const auto target = far->allocate(kDemoBytes, Access::read | Access::write);
  if (!target) return target.status();
  if (Status status = far->publish("target", *target); !status) return status;
  tool.print("Two engines of this process: ");
  if (Status status = demo_path(tool, *near, *peer); !status) return status;
  tool.print(
      "Latency is from the call to its completion, worker thread and caller awake or asleep as the machine has it.\n");
  return {};
}

}  // namespace fairway::tool
