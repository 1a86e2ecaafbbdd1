#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/open.h"
#include "sim/fabric.h"
#include "sim/fiber.h"
#include "support/at_length.h"
#include "transport/loopback/direct_wire.h"

// Engines in virtual time, each used by several threads of its program, which wait for one another's messages, end each
// other's transfers and memory, and close the engine while others are inside its calls; links break and hosts freeze
// meanwhile. Whatever happens, each wait ends, each accepted transfer completes once, messages of a tag come whole and
// in their order, ok means that the bytes are there, and none moves once its memory is fenced.
namespace fairway::sim {
namespace {

constexpr std::size_t kEngines = 3, kStrands = 3, kTags = 2, kActs = 15;
constexpr std::uint64_t kArea = 16 * 1024, kLongest = 2048;
constexpr Timeout kEver = std::chrono::seconds(300);  // of virtual time: nothing takes so long

class Crowd {
 public:
  explicit Crowd(std::uint64_t seed)
      : simulation_([&] {
          SimulationOptions options;
          options.seed = seed;
          options.stuck = [this](const std::string& why) { wrong(why); };
          return options;
        }()),
        fabric_(simulation_),
        random_(seed * 7919) {
    for (std::size_t i = 0; i < kEngines; ++i) engines_.push_back(std::make_unique<One>(*this, i));
  }

  // What went wrong; empty: nothing.
  std::string run() {
    all([](One& one, std::size_t strand) {
      if (strand == 0) one.join();
    });
    for (std::size_t i = 0; i < 2 + random_.below(4); ++i)
      simulation_.in(random_.between(1, 20'000) * kMicrosecond, &Crowd::disturb, this);
    closer_ = random_.chance(500) ? random_.below(kEngines) : kEngines;
    acting_ = kEngines * kStrands;
    all([](One& one, std::size_t strand) { one.act(strand); });
    over_ = true;
    all([](One& one, std::size_t strand) {
      if (strand == 0) one.leave();
    });
    if (fabric_.open_ends() != 0) wrong("ports are left");
    return why_;
  }

 private:
  struct Tag {  // of one sender, one receiver: its messages are numbers, in order
    bool sending = false, receiving = false;
    std::uint32_t sent = 0, received = 0;
  };

  struct One {
    One(Crowd& all, std::size_t number) : crowd(all), index(number), host(all.simulation_.add_host()) {
      NicDevice device;
      device.device = transport::loopback::DirectWire::default_device();
      device.device.name = "nic";
      device.nature.at_once_per_mille = crowd.random_.chance(500) ? 300 : 0;
      auto wire = crowd.fabric_.plug_in(host, {device, device});
      EngineOptions options;
      options.name = "e" + std::to_string(number);
      options.listen = host.address() + ":7000";
      options.job_key = "a key for all";
      options.workers = crowd.random_.chance(300) ? 2 : 1;
      options.progress = crowd.random_.chance(300) ? Progress::caller : Progress::threads;
      options.max_transfers = crowd.random_.chance(200) ? 8 : 64;
      options.peer_timeout = std::chrono::milliseconds(crowd.random_.chance(500) ? 2000 : 200);
      auto opened =
          EngineAccess::open(options, host.runtime(), [wire](transport::RegionTable& table, Runtime& runtime) {
            std::vector<std::unique_ptr<transport::Transport>> transports;
            transports.push_back(transport::open_loopback_transport(wire, table, runtime));
            return transports;
          });
      if (!opened) crowd.wrong(opened.status().to_string());
      if (opened) engine.emplace(std::move(*opened));
      for (std::size_t i = 0; i < kStrands; ++i) strands.push_back(std::make_unique<Strand>(host));
    }

    void join() {
      for (std::size_t i = 0; i < kStrands; ++i) {
        areas[i].resize(kArea);
        regions.push_back(add(areas[i]));
        inboxes[i].resize(kEngines * kLongest);
        (void)engine->publish("inbox " + std::to_string(i), add(inboxes[i]));
      }
      for (const auto& other : crowd.engines_) {
        if (other.get() == this) continue;
        const auto peer = engine->connect(other->engine->address(), kEver);
        if (!peer) return crowd.wrong("connect: " + peer.status().to_string());
        peers[other->index] = *peer;
      }
      for (const auto& other : crowd.engines_)
        for (std::size_t i = 0; i < kStrands && other.get() != this; ++i) {
          const auto remote = engine->lookup(peers[other->index], "inbox " + std::to_string(i), kEver);
          if (!remote) return crowd.wrong("lookup: " + remote.status().to_string());
          remotes[other->index].push_back(*remote);
        }
    }
    Region add(std::vector<std::byte>& bytes) {
      auto region = engine->register_memory(bytes.data(), bytes.size(), Access::all);
      if (!region && !may_fail(region.status())) crowd.wrong("register: " + region.status().to_string());
      return region ? *region : Region{};
    }

    // One of the program's threads.
    void act(std::size_t strand) {
      for (std::size_t i = 0; i < kActs && engine->is_open(); ++i) {
        const std::size_t other = (index + 1 + below(kEngines - 1)) % kEngines;
        switch (below(10)) {
          case 0:
          case 1: write_and_look(strand, other); break;
          case 2:
          case 3: send_some(strand, other); break;
          case 4: receive_some(strand, other); break;
          case 5: end_own_memory(other); break;
          case 6: cancel_one(strand, other); break;
          case 7: wait_for_many(strand, other); break;
          case 8: (void)(below(2) == 0 ? engine->flush(peers[other], kEver) : engine->drain(kEver)); break;
          default: rest(below(300) * kMicrosecond);
        }
      }
      if (strand == 1 && crowd.closer_ == index) engine->close();
      --crowd.acting_;
      // An engine that its caller steps is waited for by the others as long as nobody does.
      while (strand == 0 && crowd.acting_ > 0 && engine->is_open()) {
        (void)engine->poll({});
        rest(100 * kMicrosecond);
      }
    }
    void leave() {
      const auto left = engine->metrics().transfers_in_use;
      if (left != 0) crowd.wrong(std::to_string(left) + " transfers are left in e" + std::to_string(index));
      engine->close();
      engine.reset();
    }

    std::uint64_t below(std::uint64_t limit) { return crowd.random_.below(limit); }
    void rest(Time time) {
      const Time until = after(crowd.simulation_.now(), time);
      while (Strand::current()->pause(until)) {
      }
    }
    // What the faults, and an engine that closes, may do to a transfer.
    static bool may_fail(const Status& status) {
      switch (status.code()) {
        case ErrorCode::closed:
        case ErrorCode::cancelled:
        case ErrorCode::peer_dead:
        case ErrorCode::stale_incarnation:
        case ErrorCode::link_failed:
        case ErrorCode::queue_full:
        case ErrorCode::revoked: return true;
        default: return status.message().find("did not close its end of a broken link in time") != std::string::npos;
      }
    }
    // Its completion, which comes once; none: it was refused, for a reason that may be.
    std::optional<Completion> finish(const Result<TransferId>& id, bool may_be_late = false) {
      if (!id) {
        if (!may_fail(id.status())) crowd.wrong("refused: " + id.status().to_string());
        return {};
      }
      auto done = engine->wait(*id, kEver);
      if (!done) {
        crowd.wrong("it never completed: " + done.status().to_string());
        return {};
      }
      if (engine->wait(*id, Timeout(0)).status().code() != ErrorCode::not_found) crowd.wrong("it completed twice");
      const bool late = may_be_late && done->status.code() == ErrorCode::deadline_exceeded;
      if (!done->status && !late && !may_fail(done->status)) crowd.wrong("it failed: " + done->status.to_string());
      return *done;
    }
    Extent piece(std::size_t strand, std::size_t other, std::uint64_t at, std::uint64_t bytes) const {
      return {{regions[strand].id, at, bytes}, {remotes.at(other)[strand].id, index * kLongest}};
    }

    // Each strand has an area of its own here, and in its peer of that number's inbox.
    void write_and_look(std::size_t strand, std::size_t other) {
      const std::uint64_t bytes = 1 + below(kLongest);
      for (std::uint64_t i = 0; i < bytes; ++i) areas[strand][i] = static_cast<std::byte>(crowd.random_.below(256));
      const auto done = finish(engine->write(peers[other], piece(strand, other, 0, bytes)));
      const std::byte* const there = crowd.engines_[other]->inboxes[strand].data() + index * kLongest;
      if (done && done->status && std::memcmp(areas[strand].data(), there, bytes) != 0)
        crowd.wrong("ok before the bytes were there");
    }

    static std::uint64_t length_of(std::uint32_t number) { return number % 8 == 7 ? 12'000 : 8 + number % 100; }
    void send_some(std::size_t strand, std::size_t other) {
      const std::size_t which = below(kTags);
      Tag& tag = crowd.tags_[index][other][which];
      if (tag.sending) return;
      tag.sending = true;
      for (std::uint64_t left = 1 + below(4); left > 0; --left) {
        const std::uint32_t number = tag.sent;
        std::memset(areas[strand].data(), static_cast<int>(number & 0xff), kArea);
        std::memcpy(areas[strand].data(), &number, sizeof number);
        RequestOptions options;
        options.local_completion = below(2) == 0;
        options.deadline = below(4) == 0 ? Timeout(below(3000)) : std::chrono::milliseconds(500);
        const auto id = engine->send(peers[other], which, {regions[strand].id, 0, length_of(number)}, options);
        ++tag.sent;  // also where it fails: it may have been received
        const auto done = finish(id, true);
        if (!done || !done->status) break;
      }
      tag.sending = false;
    }
    // Half of the time of whichever peer sends.
    void receive_some(std::size_t strand, std::size_t other) {
      const std::size_t which = below(kTags);
      bool& receiving = crowd.receiving_[index][which];
      if (receiving) return;
      receiving = true;
      const bool any = below(2) == 0;
      for (std::uint64_t left = 1 + below(4); left > 0; --left) {
        RequestOptions options;
        options.deadline = Timeout(below(5000));
        const auto done = finish(
            engine->receive(any ? PeerId{} : peers[other], which, {regions[strand].id, 0, kArea}, options), true);
        if (!done || !done->status) break;
        std::size_t from = 0;
        while (from < kEngines && peers[from] != done->peer) ++from;
        if (from == kEngines || (!any && from != other)) return crowd.wrong("a message of a peer that is none");
        std::uint32_t number = 0;
        std::memcpy(&number, areas[strand].data(), sizeof number);
        std::uint32_t& next = crowd.tags_[from][index][which].received;
        // A message whose receive's deadline passed in the middle of it is lost to both, and said to be.
        if (number < next) crowd.wrong("message " + std::to_string(number) + " behind one before it");
        next = number + 1;
        if (done->bytes != length_of(number)) crowd.wrong("a message of another length");
        for (std::uint64_t i = sizeof number; i < done->bytes; ++i)
          if (areas[strand][i] != static_cast<std::byte>(number & 0xff)) return crowd.wrong("a message is torn");
      }
      receiving = false;
    }

    // Another thread's transfer may use it: once it is fenced no byte moves.
    void end_own_memory(std::size_t other) {
      auto bytes = std::make_unique<std::vector<std::byte>>(4096);
      const Region region = add(*bytes);
      if (!region.id) return;
      const auto read = engine->read(peers[other], {{region.id, 0, 4096}, {remotes.at(other)[0].id, 0}});
      const auto receive = engine->receive({}, 99, {region.id, 0, 64});
      if (below(2) == 0) rest(below(50) * kMicrosecond);
      Status ended = engine->deregister(region, kEver);
      if (ended || ended.code() == ErrorCode::closed) {
        const std::vector<std::byte> then = *bytes;
        (void)finish(read);
        (void)finish(receive);
        rest(kMillisecond);
        if (then != *bytes) crowd.wrong("a byte moved after the memory was fenced");
      } else {
        crowd.wrong("deregister: " + ended.to_string());
      }
      crowd.kept_.push_back(std::move(bytes));
    }
    void cancel_one(std::size_t strand, std::size_t other) {
      const bool receives = below(2) == 0;
      const auto id = receives
                          ? engine->receive(below(2) == 0 ? PeerId{} : peers[other], 98, {regions[strand].id, 0, 64})
                          : engine->write(peers[other], piece(strand, other, 0, kLongest));
      if (id) (void)engine->cancel(*id, kEver);
      (void)finish(id);
    }
    void wait_for_many(std::size_t strand, std::size_t other) {
      std::vector<TransferId> ids;
      for (std::uint64_t left = 1 + below(4); left > 0; --left) {
        const auto id = engine->write(peers[other], piece(strand, other, 0, 1 + below(kLongest)));
        if (id) ids.push_back(*id);
      }
      if (below(2) == 0) {
        std::vector<Completion> done(ids.size());
        if (const Status status = engine->wait_all(ids, done, kEver); !status) crowd.wrong(status.to_string());
        return;
      }
      for (std::size_t i = 0; i < ids.size(); ++i)
        if (const auto done = engine->wait_any(ids, kEver); !done) crowd.wrong(done.status().to_string());
    }

    Crowd& crowd;
    const std::size_t index;
    Host& host;
    std::optional<Engine> engine;
    std::vector<std::unique_ptr<Strand>> strands;
    std::array<std::vector<std::byte>, kStrands> areas, inboxes;
    std::vector<Region> regions;
    std::array<PeerId, kEngines> peers{};
    std::map<std::size_t, std::vector<RemoteRegion>> remotes;
  };

  void wrong(const std::string& why) {
    if (why_.empty()) why_ = why;
  }
  // Runs `program(one, strand)` as each thread of each engine, until all have ended it.
  template <class Program>
  void all(const Program& program) {
    for (const auto& one : engines_)
      for (std::size_t i = 0; i < one->strands.size(); ++i)
        one->strands[i]->start([&one = *one, i, program] { program(one, i); }, simulation_.now());
    for (const auto& one : engines_)
      for (const auto& strand : one->strands)
        while (!strand->ended())
          if (!simulation_.step()) return wrong("a wait that never ends");
  }
  static void disturb(void* crowd, std::uint64_t, std::uint64_t) { static_cast<Crowd*>(crowd)->disturb(); }
  void disturb() {
    if (over_) return;
    const std::size_t a = random_.below(kEngines), b = (a + 1) % kEngines;
    const Time lasts = random_.chance(100) ? random_.between(1, 3) * kSecond : random_.between(1, 20) * kMillisecond;
    switch (random_.below(4)) {
      case 0: return fabric_.break_device(engines_[a]->host, random_.below(2), lasts);
      case 1: return fabric_.break_between(engines_[a]->host, engines_[b]->host);
      case 2: simulation_.path(a, b).cut = true; return simulation_.in(lasts, &Crowd::mend, this, a, b);
      default:
        if (engines_[a]->host.frozen()) return;
        engines_[a]->host.freeze();
        return simulation_.in(lasts, &Crowd::thaw, this, a);
    }
  }
  static void mend(void* crowd, std::uint64_t a, std::uint64_t b) {
    static_cast<Crowd*>(crowd)->simulation_.path(a, b).cut = false;
  }
  static void thaw(void* crowd, std::uint64_t a, std::uint64_t) {
    static_cast<Crowd*>(crowd)->engines_[a]->host.thaw();
  }

  std::string why_;
  Simulation simulation_;
  Fabric fabric_;
  Random random_;
  bool over_ = false;
  std::size_t acting_ = 0;         // threads that have not ended their acts
  std::size_t closer_ = kEngines;  // who closes its engine in the middle
  std::array<std::array<std::array<Tag, kTags>, kEngines>, kEngines> tags_;
  std::array<std::array<bool, kTags>, kEngines> receiving_{};
  std::vector<std::unique_ptr<std::vector<std::byte>>> kept_;  // deregistered memory: nothing may land there
  std::vector<std::unique_ptr<One>> engines_;
};

void expect_well(std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const std::string why = Crowd(seed).run();
    ASSERT_EQ(why, "") << "seed " << seed;
  }
}

TEST(SimulatedThreads, KeepEveryPromise) {
  expect_well(1, 300);
}

class ManySimulatedThreads : public testing::TestWithParam<std::uint64_t> {};
TEST_P(ManySimulatedThreads, KeepEveryPromise) {
  constexpr std::uint64_t kSeeds = 2'500;
  expect_well(GetParam() * kSeeds + 1, (GetParam() + 1) * kSeeds);
}
INSTANTIATE_TEST_SUITE_P(HundredThousandSeeds, ManySimulatedThreads,
                         testing::Range(std::uint64_t{0}, std::uint64_t{40}));

}  // namespace
}  // namespace fairway::sim
