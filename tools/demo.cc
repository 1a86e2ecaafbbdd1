#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "fairway/fairway.h"

#include "command.h"
#include "other_process.h"

// `fairway demo`: what a program sees when a process that it writes to is killed.
namespace fairway::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBlockBytes = 64u << 10;
constexpr unsigned kBlocks = 512;
constexpr std::uint64_t kBytes = kBlocks * kBlockBytes;
constexpr std::size_t kUnderWay = 8;  // writes
constexpr std::chrono::seconds kBound{10};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// One of the processes that are written to, as the writer sees it.
struct Receiver {
  OtherProcess process;
  std::string address;
  PeerId peer;
  RemoteRegion blocks;
  double connected_ms = 0;
};

Status start(Engine& engine, const std::string& name, Receiver& receiver) {
  const auto address = receiver.process.start({"demo", "peer", name});
  if (!address) return address.status();
  receiver.address = *address;
  const auto began = Clock::now();
  const auto peer = engine.connect(*address);
  if (!peer) return peer.status();
  receiver.connected_ms = ms_since(began);
  const auto blocks = engine.lookup(*peer, "blocks");
  if (!blocks) return blocks.status();
  receiver.peer = *peer;
  receiver.blocks = *blocks;
  return {};
}

// Writes blocks in order, from the first again after the last, a few at a time.
class Writer {
 public:
  Writer(Engine& engine, const Region& source, const Receiver& to) : engine_(engine), source_(source), to_(to) {}

  // Starts one write; waits for the oldest when kUnderWay are in flight.
  Status step() {
    const std::uint64_t offset = next_++ % kBlocks * kBlockBytes;
    const auto id = engine_.write(to_.peer, Extent{{source_.id, offset, kBlockBytes}, {to_.blocks.id, offset}});
    if (!id) return id.status();
    under_way_.push_back(*id);
    return under_way_.size() < kUnderWay ? Status() : end_oldest();
  }
  // Waits for all writes in flight. Returns the first error, and counts the writes that failed.
  Status end_all(unsigned& failed) {
    Status first;
    while (!under_way_.empty()) {
      const Status status = end_oldest();
      failed += status ? 0 : 1;
      if (first && !status) first = status;
    }
    return first;
  }

 private:
  Status end_oldest() {
    const TransferId id = under_way_.front();
    under_way_.pop_front();
    const auto done = engine_.wait(id, kBound);
    return done ? done->status : done.status();
  }

  Engine& engine_;
  const Region& source_;
  const Receiver& to_;
  std::deque<TransferId> under_way_;
  std::uint64_t next_ = 0;
};

// All blocks, then read back and compared.
Status deliver(Engine& engine, const Region& source, const Region& back, const Receiver& to) {
  Writer writer(engine, source, to);
  for (unsigned block = 0; block < kBlocks; ++block)
    if (Status status = writer.step(); !status) return status;
  unsigned failed = 0;
  if (Status status = writer.end_all(failed); !status) return status;
  std::memset(back.address, 0, kBytes);
  const auto id = engine.read(to.peer, Extent{{back.id, 0, kBytes}, {to.blocks.id, 0}});
  if (!id) return id.status();
  const auto done = engine.wait(*id, kBound);
  if (!done) return done.status();
  if (!done->status) return done->status;
  if (std::memcmp(source.address, back.address, kBytes) != 0)
    return Status(ErrorCode::checksum_mismatch, "the blocks did not come back as they were written");
  return {};
}

// Differs at every position, so that a byte at a wrong place shows.
void fill(const Region& source) {
  auto* bytes = static_cast<std::uint8_t*>(static_cast<void*>(source.address));
  for (std::uint64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::uint8_t>((i * 131 + (i >> 8) * 29) >> 1);
}

Status show(Tool& tool) {
  auto engine = Engine::open({});
  if (!engine) return engine.status();
  const auto source = engine->allocate(kBytes, Access::none);
  const auto back = engine->allocate(kBytes, Access::none);
  if (!source || !back) return source ? back.status() : source.status();
  fill(*source);

  Receiver first;
  Receiver second;
  for (const auto& [name, receiver] : {std::pair("first", &first), std::pair("second", &second)}) {
    if (Status status = start(*engine, name, *receiver); !status) return status;
    tool.print(
        fmt::format("Process \"{}\" at {}: connected in {:.1f} ms\n", name, receiver->address, receiver->connected_ms));
  }

  Writer writer(*engine, *source, first);
  for (unsigned block = 0; block < kBlocks; ++block)
    if (Status status = writer.step(); !status) return status;
  tool.print(fmt::format("Blocks of {} KiB go to \"first\", {} at a time. After {} of them it is killed.\n",
                         kBlockBytes >> 10, kUnderWay, kBlocks));
  const auto killed = Clock::now();
  first.process.kill();
  Status why;
  while (why && Clock::now() - killed < kBound) why = writer.step();
  const double known = ms_since(killed);
  if (why) return Status(ErrorCode::timed_out, "writes to a process that was killed still succeed");
  unsigned failed = 1;
  (void)writer.end_all(failed);
  tool.print(fmt::format("Known after {:.1f} ms: {}\n", known, why.to_string()));
  tool.print(fmt::format("Every write has completed: {} with that error, the others with ok.\n", failed));

  auto began = Clock::now();
  if (Status status = deliver(*engine, *source, *back, second); !status) return status;
  tool.print(fmt::format("All {} blocks went to \"second\" instead, which took {:.1f} ms. Every byte was compared.\n",
                         kBlocks, ms_since(began)));
  if (Status status = start(*engine, "first", first); !status) return status;
  began = Clock::now();
  if (Status status = deliver(*engine, *source, *back, first); !status) return status;
  tool.print(fmt::format("\"first\" was started again: connected in {:.1f} ms, all blocks delivered in {:.1f} ms.\n",
                         first.connected_ms, ms_since(began)));
  return {};
}

// Opens an engine, prints its address and ends with its standard input.
Exit receive(Tool& tool, const std::string& name) {
  EngineOptions options;
  options.name = name;
  auto engine = Engine::open(options);
  if (!engine) return tool.fail(engine.status());
  const auto blocks = engine->allocate(kBytes, Access::read | Access::write);
  if (!blocks) return tool.fail(blocks.status());
  if (Status status = engine->publish("blocks", *blocks); !status) return tool.fail(status);
  tool.print(engine->address() + "\n");
  wait_for_end_of_input();
  return Exit::done;
}

}  // namespace

void add_demo(Tool& tool) {
  CLI::App& command =
      tool.add(Group::traffic, "demo", "Kill a process while blocks are written to it, and show what happens");
  command.footer(
      "Starts two processes and writes blocks to one of them until it is killed. The blocks then go to the\n"
      "other, and to the first once it is started again. Every byte is compared. Takes a second. To\n"
      "measure, see fairway bench.\n"
      "Example:\n"
      "  fairway demo");
  tool.on_run(command, [&tool] {
    const Status status = show(tool);
    return status ? Exit::done : tool.fail(status);
  });
  CLI::App& peer = tool.add_below(command, "peer", "Be one of the other processes");
  peer.group("");  // the demo's own
  const auto name = std::make_shared<std::string>();
  peer.add_option("NAME", *name, "What it is called")->required();
  tool.on_run(peer, [&tool, name] { return receive(tool, *name); });
}

}  // namespace fairway::tool
