#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"
#include "support/open_engine.h"

// Engine::map for CPUs: a peer's memory, by loads and stores. Who holds what, how long, and how it ends.
namespace fairway::shm_map {
namespace {

using control::ChildProcess;

constexpr Timeout kSoon = std::chrono::seconds(20);
constexpr std::uint64_t kBytes = 1U << 20;

EngineOptions options_of(const std::string& name, bool strict = false) {
  EngineOptions options;
  options.name = name;
  options.transports = {"shm"};
  options.peer_timeout = std::chrono::seconds(2);
  options.strict_isolation = strict;
  return options;
}

std::atomic_ref<std::uint64_t> word(std::byte* at) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at));
}

// Publishes its memory, and does what it is told:
//   deregister <ms>  "ok", or the error
//   word <n>         word n of its memory
//   close            closes its engine
void own(ChildProcess::Line& line, Access access, bool ordinary) {
  auto engine = open_engine(options_of("owner"));
  if (!engine) return line.write(engine.status().to_string());
  std::vector<std::byte> heap(ordinary ? kBytes : 0);
  const auto memory =
      ordinary ? engine->register_memory(heap.data(), kBytes, access) : engine->allocate(kBytes, access);
  if (!memory || !engine->publish("memory", *memory)) return line.write("no memory");
  word(memory->address + 8).store(42);
  line.write(engine->address());
  for (std::string words = line.read(); !words.empty(); words = line.read()) {
    std::istringstream in(words);
    std::string what;
    std::uint64_t number = 0;
    in >> what >> number;
    if (what == "deregister") {
      const Status status = engine->deregister(*memory, std::chrono::milliseconds(number));
      line.write(status ? "ok" : status.to_string());
    } else if (what == "word") {
      line.write(std::to_string(word(memory->address + 8 * number).load()));
    } else if (what == "close") {
      engine->close();
      line.write("closed");
    }
  }
}

class ShmMapping : public testing::Test {
 protected:
  void meet(Access access = Access::all, bool ordinary = false, bool strict = false) {
    child_ = std::make_unique<ChildProcess>([=](auto& line) { own(line, access, ordinary); });
    const std::string address = child_->read();
    auto opened = open_engine(options_of("holder", strict));
    ASSERT_TRUE(opened) << opened.status().to_string();
    engine_ = std::make_unique<Engine>(std::move(*opened));
    const auto peer = engine_->connect(address, kSoon);
    ASSERT_TRUE(peer) << peer.status().to_string();
    peer_ = *peer;
    const auto remote = engine_->lookup(*peer, "memory", kSoon);
    ASSERT_TRUE(remote) << remote.status().to_string();
    remote_ = *remote;
  }
  Mapping mapped() {
    const auto mapping = engine_->map(remote_, kCpu, kSoon);
    EXPECT_TRUE(mapping) << mapping.status().to_string();
    return mapping ? *mapping : Mapping{};
  }
  std::string ask(const std::string& words) {
    child_->write(words);
    return child_->read();
  }
  // The next mapping_ended, if it comes.
  PeerEvent ending() {
    const auto until = std::chrono::steady_clock::now() + kSoon;
    std::array<PeerEvent, 1> events;
    while (std::chrono::steady_clock::now() < until) {
      (void)engine_->wait_peer_event(std::chrono::milliseconds(50));
      while (engine_->poll_peer_events(events) == 1)
        if (events[0].kind == PeerEvent::Kind::mapping_ended) return events[0];
    }
    return {};
  }
  static ErrorCode said(const Mapping& mapping) {
    return static_cast<ErrorCode>(std::atomic_ref(*const_cast<std::uint32_t*>(mapping.ended)).load());
  }

  std::unique_ptr<ChildProcess> child_;
  std::unique_ptr<Engine> engine_;
  PeerId peer_;
  RemoteRegion remote_;
};

TEST_F(ShmMapping, IsTheOwnersMemoryUntilTheHolderLetsGo) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const Mapping mapping = mapped();
  ASSERT_TRUE(mapping.id);
  EXPECT_EQ(mapping.size_bytes, kBytes);
  EXPECT_EQ(mapping.gpu, kCpu);
  EXPECT_EQ(mapping.access, Access::all);
  EXPECT_TRUE(mapping.atomics);
  EXPECT_EQ(said(mapping), ErrorCode::ok);
  EXPECT_EQ(word(mapping.address + 8).load(), 42U);
  word(mapping.address + 16).store(7);
  EXPECT_EQ(ask("word 2"), "7");

  const std::string kept = ask("deregister 300");
  EXPECT_NE(kept.find("not_fenced"), std::string::npos) << kept;
  EXPECT_NE(kept.find("holder ("), std::string::npos) << kept;
  EXPECT_NE(kept.find("has it mapped"), std::string::npos) << kept;
  const PeerEvent told = ending();
  EXPECT_EQ(told.mapping, mapping.id);
  EXPECT_EQ(told.peer, peer_);
  EXPECT_EQ(told.reason.code(), ErrorCode::revoked);
  EXPECT_EQ(said(mapping), ErrorCode::revoked);
  EXPECT_EQ(engine_->map(remote_, kCpu).status().code(), ErrorCode::revoked) << "nobody gets a new one";
  EXPECT_EQ(word(mapping.address + 8).load(), 42U) << "it stays until the holder lets go";
  ASSERT_TRUE(engine_->unmap(mapping.id));
  EXPECT_EQ(engine_->unmap(mapping.id).code(), ErrorCode::not_found);
}

TEST_F(ShmMapping, DeregisterWaitsForTheHolderAndGoesOnWhenItLetsGo) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const Mapping mapping = mapped();
  child_->write("deregister 20000");
  EXPECT_EQ(ending().reason.code(), ErrorCode::revoked);
  ASSERT_TRUE(engine_->unmap(mapping.id));
  EXPECT_EQ(child_->read(), "ok");
}

TEST_F(ShmMapping, EachOfTwoOfOneRegionIsHeldByItself) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const Mapping first = mapped(), second = mapped();
  EXPECT_NE(first.id, second.id);
  ASSERT_TRUE(engine_->unmap(first.id));
  EXPECT_EQ(word(second.address + 8).load(), 42U);
  EXPECT_NE(ask("deregister 100").find("not_fenced"), std::string::npos);
  EXPECT_EQ(said(second), ErrorCode::revoked);
  ASSERT_TRUE(engine_->unmap(second.id));
}

TEST_F(ShmMapping, AKilledHolderHoldsNothingUpAndAFrozenOneIsNamed) {
  ChildProcess holder([](auto& line) {  // of this process's memory
    auto engine = open_engine(options_of("third"));
    const auto peer = engine->connect(line.read(), kSoon);
    const auto remote = engine->lookup(*peer, "mine", kSoon);
    const auto mapping = engine->map(*remote, kCpu, kSoon);
    line.write(mapping ? "mapped" : mapping.status().to_string());
    (void)line.read();
  });
  auto opened = open_engine(options_of("owner"));
  ASSERT_TRUE(opened);
  const auto mine = opened->allocate(kBytes, Access::all);
  ASSERT_TRUE(mine && opened->publish("mine", *mine));
  holder.write(opened->address());
  ASSERT_EQ(holder.read(), "mapped");
  const std::uint64_t regions = opened->metrics().regions;
  holder.signal(SIGSTOP);
  const Status kept = opened->deregister(*mine, std::chrono::milliseconds(100));
  EXPECT_EQ(kept.code(), ErrorCode::not_fenced) << kept.to_string();
  EXPECT_NE(kept.message().find("third"), std::string::npos) << kept.to_string();
  holder.kill();
  const auto until = std::chrono::steady_clock::now() + kSoon;
  while (opened->metrics().regions == regions && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(opened->metrics().regions, regions - 1) << "what was begun ends once nobody holds it";
}

TEST_F(ShmMapping, AKilledOwnerEndsItTypedAndItsBytesStayReadable) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const Mapping mapping = mapped();
  child_->kill();
  const PeerEvent told = ending();
  EXPECT_EQ(told.mapping, mapping.id);
  EXPECT_EQ(told.reason.code(), ErrorCode::peer_dead) << told.reason.to_string();
  EXPECT_EQ(said(mapping), ErrorCode::peer_dead);
  EXPECT_EQ(word(mapping.address + 8).load(), 42U);
  std::memset(mapping.address, 1, kBytes);
  EXPECT_TRUE(engine_->unmap(mapping.id)) << "a peer that is gone keeps nobody from that";
  EXPECT_FALSE(engine_->map(remote_, kCpu));
}

TEST_F(ShmMapping, AnOwnerThatClosesEndsIt) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const Mapping mapping = mapped();
  EXPECT_EQ(ask("close"), "closed");
  EXPECT_EQ(ending().mapping, mapping.id);
  EXPECT_NE(said(mapping), ErrorCode::ok);
  EXPECT_EQ(word(mapping.address + 8).load(), 42U);
  EXPECT_TRUE(engine_->unmap(mapping.id));
}

TEST_F(ShmMapping, OfAReadOnlyRegionCanBeRead) {
  ASSERT_NO_FATAL_FAILURE(meet(Access::read));
  const Mapping mapping = mapped();
  EXPECT_EQ(mapping.access, Access::read);
  EXPECT_EQ(word(mapping.address + 8).load(), 42U);
  // The kernel keeps it from being written.
  const int nothing = ::open("/dev/zero", O_RDONLY);
  EXPECT_EQ(::read(nothing, mapping.address, 8), -1);
  EXPECT_EQ(errno, EFAULT);
  ::close(nothing);
}

TEST_F(ShmMapping, WhatHasNoDirectWayIsRefusedWithTheReason) {
  ASSERT_NO_FATAL_FAILURE(meet(Access::all, true));
  const auto ordinary = engine_->map(remote_, kCpu);
  EXPECT_EQ(ordinary.status().code(), ErrorCode::unsupported);
  EXPECT_NE(ordinary.status().message().find("no memory file"), std::string::npos) << ordinary.status().to_string();
  EXPECT_EQ(engine_->map(remote_, 0).status().code(), ErrorCode::unsupported) << "for a GPU";
}

TEST_F(ShmMapping, StrictIsolationRefusesIt) {
  ASSERT_NO_FATAL_FAILURE(meet(Access::all, false, true));
  const auto refused = engine_->map(remote_, kCpu);
  EXPECT_EQ(refused.status().code(), ErrorCode::unsupported);
  EXPECT_NE(refused.status().message().find("strict_isolation"), std::string::npos) << refused.status().to_string();
}

TEST_F(ShmMapping, WithoutTheTransportThereIsNone) {
  EngineOptions options = options_of("alone");
  options.transports = {"tcp"};
  auto engine = open_engine(options);
  ASSERT_TRUE(engine);
  const auto memory = engine->allocate(4096, Access::all);
  const auto refused = engine->map(*memory, kCpu);
  EXPECT_EQ(refused.status().code(), ErrorCode::unsupported);
  EXPECT_NE(refused.status().message().find("shm"), std::string::npos) << refused.status().to_string();
}

TEST_F(ShmMapping, OwnMemoryIsHeldLikeAPeers) {
  auto engine = open_engine(options_of("alone"));
  ASSERT_TRUE(engine);
  const auto memory = engine->allocate(4096, Access::all);
  ASSERT_TRUE(memory);
  const auto mapping = engine->map(*memory, kCpu);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  EXPECT_EQ(mapping->address, memory->address);
  const Status kept = engine->deregister(*memory, std::chrono::milliseconds(50));
  EXPECT_EQ(kept.code(), ErrorCode::not_fenced) << kept.to_string();
  EXPECT_NE(kept.message().find("mapping of this engine's own"), std::string::npos) << kept.to_string();
  EXPECT_EQ(engine->metrics().regions, 1U);
  EXPECT_TRUE(engine->unmap(mapping->id));
  const auto until = std::chrono::steady_clock::now() + kSoon;
  while (engine->metrics().regions != 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(engine->metrics().regions, 0U) << "what was begun ends once nobody holds it";
}

// Two engines of one process meet by shm like any two.
TEST_F(ShmMapping, OfAnotherEngineOfTheProcessToo) {
  auto one = open_engine(options_of("one")), other = open_engine(options_of("other"));
  ASSERT_TRUE(one && other);
  const auto memory = other->allocate(4096, Access::all);
  ASSERT_TRUE(memory && other->publish("memory", *memory));
  const auto peer = one->connect(other->address(), kSoon);
  ASSERT_TRUE(peer);
  const auto remote = one->lookup(*peer, "memory", kSoon);
  ASSERT_TRUE(remote);
  const auto mapping = one->map(*remote, kCpu, kSoon);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  word(memory->address).store(9);
  EXPECT_EQ(word(mapping->address).load(), 9U);
  one->close();
  EXPECT_TRUE(other->deregister(*memory)) << "a closed engine holds nothing";
}

// A holder of an earlier run is a stranger to the later one: the mapping ends, and a new one is of the new memory.
TEST_F(ShmMapping, AfterTheOwnersRestartANewOneWorks) {
  ChildProcess again([](auto& line) {
    if (!line.read().empty()) own(line, Access::all, false);
  });
  ASSERT_NO_FATAL_FAILURE(meet());
  const Mapping first = mapped();
  word(first.address + 8).store(1);
  child_->kill();
  EXPECT_EQ(ending().reason.code(), ErrorCode::peer_dead);
  again.write("now");
  const auto peer = engine_->connect(again.read(), kSoon);
  ASSERT_TRUE(peer) << peer.status().to_string();
  const auto remote = engine_->lookup(*peer, "memory", kSoon);
  ASSERT_TRUE(remote) << remote.status().to_string();
  const auto second = engine_->map(*remote, kCpu, kSoon);
  ASSERT_TRUE(second) << second.status().to_string();
  EXPECT_EQ(word(second->address + 8).load(), 42U);
  EXPECT_EQ(word(first.address + 8).load(), 1U);
  EXPECT_TRUE(engine_->unmap(first.id));
  EXPECT_TRUE(engine_->unmap(second->id));
}

}  // namespace
}  // namespace fairway::shm_map
