#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fairway/engine.h"

#include "core/bytes.h"
#include "engine/open.h"
#include "sim/fabric.h"
#include "sim/host.h"
#include "sim/simulation.h"
#include "transport/loopback/direct_wire.h"
#include "transport/loopback/loopback.h"

using namespace fairway;

// Two engines in the simulator, of which one is asked for whatever the input says: any value in every field but
// pointers, and ids and sizes that are good as often as not, so that much of it is taken. What is taken ends, once, by
// itself or by cancel(), and nothing outside of the two regions changes.
namespace {

constexpr std::size_t kRegion = 8192;
constexpr std::byte kPaint{0x5a};
constexpr Timeout kWithin = std::chrono::seconds(20);  // of virtual time

[[noreturn]] void broken(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

struct Side {
  sim::Host* host = nullptr;
  std::vector<std::uint64_t> words = std::vector<std::uint64_t>(3 * kRegion / 8);
  std::optional<Engine> engine;
  Region region;
  std::byte* bytes() { return reinterpret_cast<std::byte*>(words.data()); }
};

class Two {
 public:
  explicit Two(bool by_messages) {
    for (Side* side : {&here, &there}) {
      side->host = &simulation_.add_host();
      sim::NicDevice device;
      device.device = transport::loopback::DirectWire::default_device();
      device.device.name = "nic";
      if (by_messages) device.device.capabilities.operations = static_cast<std::uint8_t>(transport::Op::message);
      auto wire = fabric_.plug_in(*side->host, {device});
      EngineOptions options;
      options.name = side == &here ? "here" : "there";
      options.listen = side->host->address() + ":7000";
      options.job_key = "key";
      options.max_transfers = 64;
      options.max_peers = 2;
      auto opened =
          EngineAccess::open(options, side->host->runtime(),
                             [&](transport::RegionTable& regions, Runtime& runtime) {
                               std::vector<std::unique_ptr<transport::Transport>> transports;
                               transports.push_back(transport::open_loopback_transport(wire, regions, runtime));
                               return transports;
                             },
                             {});
      side->engine.emplace(std::move(opened).value());
      std::fill_n(side->bytes(), 3 * kRegion, kPaint);
      side->region = *side->engine->register_memory(side->bytes() + kRegion, kRegion, Access::all);
    }
    peer = *here.engine->connect(there.engine->address(), kWithin);
    remote = *here.engine->import_region(peer, *there.engine->describe(there.region));
  }
  void run(Time time) { simulation_.run_until(simulation_.now() + time); }
  void check() {
    for (Side* side : {&here, &there})
      for (std::size_t i = 0; i < 3 * kRegion; ++i)
        if ((i < kRegion || i >= 2 * kRegion) && side->bytes()[i] != kPaint)
          broken("byte " + std::to_string(i) + " outside the region changed");
  }

 private:
  sim::Simulation simulation_{sim::SimulationOptions{}};
  sim::Fabric fabric_{simulation_};

 public:
  Side here, there;
  PeerId peer;
  RemoteRegion remote;
};

// One request's fields, and what its layout borrows.
struct Drawn {
  Request request;
  std::array<Extent, 8> list;
  std::array<std::uint64_t, 8> local_index, remote_index;
  std::array<std::byte, 300> message{};
  int completions = 0;
};

class Draw {
 public:
  Draw(ByteReader& reader, const Two& two) : reader_(reader), two_(two) {}

  void fill(Drawn& out, TransferId earlier) {
    Request& r = out.request;
    // Each bit makes some of the fields good.
    good_ = reader_.get<std::uint8_t>();
    r.operation = static_cast<Operation>(good(1) ? byte() % 6 : byte());
    r.peer = good(2) ? two_.peer : PeerId{word(), word()};
    r.target = remote();
    r.operand = number();
    r.expected = number();
    r.tag = byte();
    layout(out);
    RequestOptions& o = r.options;
    o.notify.kind = static_cast<NotifyKind>(good(4) ? byte() % 4 : byte());
    o.notify.immediate = word();
    o.notify.signal = remote();
    o.notify.signal_value = number();
    o.notify.signal_add = (byte() & 1) != 0;
    o.notify.message = std::span(out.message).first(good(4) ? 0 : byte() + 45u);
    const std::uint8_t after = byte();
    o.after = after < 160 ? TransferId{} : after < 220 ? earlier : TransferId{word(), word()};
    o.deadline = good(8) ? kForever : Timeout(static_cast<std::int64_t>(number()));
    o.checksum = (byte() & 1) != 0;
    o.priority = static_cast<Priority>(good(16) ? byte() % 3 : byte());
    o.deliver = static_cast<Deliver>(good(16) ? 2 : byte());
    o.user_data = &out;
    if (byte() < 250) o.callback = [](const Completion& c, void*) { ++static_cast<Drawn*>(c.user_data)->completions; };
  }

 private:
  bool good(std::uint8_t bit) const { return (good_ & bit) != 0; }
  std::uint8_t byte() { return reader_.get<std::uint8_t>(); }
  std::uint32_t word() { return reader_.get<std::uint32_t>(); }
  std::uint64_t number() {  // small as often as not
    const std::uint8_t size = byte();
    if (size < 128) return reader_.get<std::uint16_t>() % kRegion;
    return size < 160 ? ~std::uint64_t{0} - byte() : reader_.get<std::uint64_t>();
  }
  std::uint64_t aligned() { return good(32) ? number() / 8 * 8 : number(); }
  RegionId local_id() { return good(64) ? two_.here.region.id : RegionId{word(), word()}; }
  RemoteRegionId remote_id() { return good(64) ? two_.remote.id : RemoteRegionId{word(), word()}; }
  RemoteAddress remote() { return {remote_id(), aligned()}; }
  Extent extent() {
    const RegionId region = local_id();
    const std::uint64_t offset = number(), length = number() / (good(128) ? 4 : 1);
    return {{region, offset, length}, remote()};
  }
  void layout(Drawn& out) {
    const std::uint8_t kind = byte();
    switch (kind % 4) {
      case 0: out.request.layout = extent(); return;
      case 1:
        for (Extent& each : out.list) each = extent();
        out.request.layout = std::span<const Extent>(out.list).first(kind / 4 % 9);
        return;
      case 2: {
        const Extent first = extent();
        const std::uint64_t near = number(), far = number(), count = number();
        out.request.layout = Strided{first, near, far, count};
        return;
      }
      default: {
        for (std::uint64_t& index : out.local_index) index = number();
        for (std::uint64_t& index : out.remote_index) index = number();
        Paged paged{local_id(), remote_id(), number(), number(), number(), {}, {}};
        paged.local_index = std::span<const std::uint64_t>(out.local_index).first(kind / 4 % 9);
        paged.remote_index = std::span<const std::uint64_t>(out.remote_index).first(kind < 240 ? kind / 4 % 9 : 3);
        out.request.layout = paged;
      }
    }
  }

  ByteReader& reader_;
  const Two& two_;
  std::uint8_t good_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ByteReader reader(std::as_bytes(std::span(data, size)));
  Two two((reader.get<std::uint8_t>() & 1) != 0);
  Engine& engine = *two.here.engine;
  std::vector<std::unique_ptr<Drawn>> all;
  std::vector<TransferId> ids;
  std::array<Notification, 8> notifications;
  while (all.size() < 8 && reader.ok() && !reader.done()) {
    auto drawn = std::make_unique<Drawn>();
    Draw(reader, two).fill(*drawn, ids.empty() ? TransferId{} : ids.back());
    TransferId id;
    const Submitted taken = engine.submit(std::span(&drawn->request, 1), std::span(&id, 1));
    if (taken.taken == 1) {
      if (drawn->request.options.deliver > Deliver::to_callback) broken("a Deliver that is none was taken");
      all.push_back(std::move(drawn));
      ids.push_back(id);
    } else if (taken.status.is_ok() || taken.status.message().empty()) {
      broken("refused without a word");
    }
    two.run(100 * kMicrosecond);
    (void)two.there.engine->poll_notifications(notifications);
  }
  two.run(2 * kMillisecond);
  std::array<Completion, 8> completions;
  for (const TransferId id : ids) {
    const auto cancelled = engine.cancel(id, kWithin);
    if (cancelled && !cancelled->fenced) broken("a transfer cannot be stopped: held by " + cancelled->held_by);
  }
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (all[i]->request.options.deliver == Deliver::to_wait && engine.wait(ids[i], kWithin)) ++all[i]->completions;
  for (std::size_t count = engine.poll(completions); count > 0; count = engine.poll(completions))
    for (std::size_t i = 0; i < count; ++i) ++static_cast<Drawn*>(completions[i].user_data)->completions;
  two.run(kMillisecond);
  for (const auto& each : all)
    if (each->completions != 1) broken("a transfer completed " + std::to_string(each->completions) + " times");
  two.check();
  engine.close();
  two.there.engine->close();
  two.check();
  return 0;
}
