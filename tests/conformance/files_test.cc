#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <memory>
#include <string>

#include <sys/socket.h>
#include <sys/stat.h>

#include "conformance/local_links.h"
#include "conformance/world.h"
#include "transport/host/handshake.h"

// Memory files that a peer maps (shm): they are let go of once the last region in them is gone, whenever that is.
namespace fairway::conformance {
namespace {

class Files : public Claim {};

std::vector<Kind> mapping_kinds() {
  std::vector<Kind> kinds = shm_kinds();
  std::erase_if(kinds, [](const Kind& kind) { return kind.name != "shm_mapped"; });
  return kinds;
}

// How often this process, which both sides are in, has that file mapped.
int mappings_of(int fd) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return -1;
  std::ifstream maps("/proc/self/maps");
  const std::string inode = " " + std::to_string(facts.st_ino) + " ";
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(inode) != std::string::npos ? 1 : 0;
  return count;
}

template <class Done>
bool wait_until(Side& side, const Done& done) {
  for (int look = 0; look < 20'000 && !done(); ++look) side.rest(kMillisecond);
  return done();
}

bool wait_unmapped(Side& side, int fd) {
  return wait_until(side, [fd] { return mappings_of(fd) == 1; });  // its owner's own
}

// A dialer has its answer and has not read it: the listener's end is half up.
bool is_welcomed() {
  return std::ranges::any_of(local_connections(), [](int fd) {
    std::array<std::byte, 512> bytes;
    const auto size = ::recv(fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    const auto note =
        transport::host::decode_note(std::span(bytes).first(size > 0 ? static_cast<std::size_t>(size) : 0));
    return note && note->kind == transport::host::Note::Kind::welcome;
  });
}

// One lends a file, the other has mapped it.
struct Lent {
  Side& owner;
  Side& other;
  Buffer buffer{4096};
  Buffer from{4096};
  Memory memory, local;

  Lent(Side& lender, Side& borrower) : owner(lender), other(borrower) {
    memory = owner.remember(buffer, Access::all);
    local = other.remember(from, Access::none);
    const std::uint64_t remote = other.import(memory);
    const UpLink link = other.wait_links(1).at(0);
    other.post_all({{slice(Op::write, link, 1, local, 0, remote, 0, 64)}});
    mapped = remote != 0 && other.wait_token(1).event.kind == EventKind::done && mappings_of(buffer.file()) == 2;
  }
  bool mapped = false;
  void deregister() { owner.deregister(memory); }
};

// Both ends closed, none dials yet.
bool cut(World& world, UpLink& from_a, UpLink& from_b) {
  from_a = world.a().wait_links(1).at(0);
  from_b = world.b().wait_links(1).at(0);
  if (!world.break_link(0)) return false;
  for (auto [side, link] : {std::pair(&world.a(), from_a.id), std::pair(&world.b(), from_b.id)}) {
    if (!side->wait([](const std::vector<Seen>& log) {
          return std::ranges::any_of(log, [](const Seen& one) { return one.event.kind == EventKind::link_down; });
        }))
      return false;
    side->fence(link);
    if (!side->wait([](const std::vector<Seen>& log) {
          return std::ranges::any_of(log, [](const Seen& one) { return one.event.kind == EventKind::fenced; });
        }))
      return false;
  }
  return true;
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Conformance, Files, testing::ValuesIn(mapping_kinds()), kind_name);

TEST_P(Files, AreLetGoOfWithTheirLastRegion) {
  connected([&](World& world, std::uint64_t) {
    Lent lent(world.b(), world.a());
    ASSERT_TRUE(lent.mapped);
    lent.deregister();
    EXPECT_TRUE(wait_unmapped(world.a(), lent.buffer.file()));
  });
}

// Nobody can be told while there is no link: who mapped it finds out when there is one again.
TEST_P(Files, AreLetGoOfByAPeerThatHadNoLinkThen) {
  for (const bool initiator_owns : {false, true})
    connected([&](World& world, std::uint64_t) {
      SCOPED_TRACE(initiator_owns);
      Lent lent(initiator_owns ? world.a() : world.b(), initiator_owns ? world.b() : world.a());
      ASSERT_TRUE(lent.mapped);
      UpLink from_a, from_b;
      ASSERT_TRUE(cut(world, from_a, from_b));
      lent.deregister();
      EXPECT_EQ(mappings_of(lent.buffer.file()), 2);
      world.b().reconnect(from_b.id);
      world.a().reconnect(from_a.id);
      ASSERT_EQ(world.a().wait_links(1).size(), 1u);
      EXPECT_TRUE(wait_unmapped(world.a(), lent.buffer.file()));
    });
}

// The dialer's end is up before the listener's: what ends in between is told once both are.
TEST_P(Files, AreLetGoOfByAPeerWhoseLinkIsHalfUp) {
  connected([&](World& world, std::uint64_t) {
    Lent lent(world.b(), world.a());
    ASSERT_TRUE(lent.mapped);
    UpLink from_a, from_b;
    ASSERT_TRUE(cut(world, from_a, from_b));
    world.a().pause(true);
    world.a().reconnect(from_a.id);
    world.b().reconnect(from_b.id);
    ASSERT_TRUE(wait_until(world.b(), is_welcomed));
    world.b().pause(true);
    world.a().pause(false);
    ASSERT_EQ(world.a().wait_links(1).size(), 1u);
    EXPECT_EQ(mappings_of(lent.buffer.file()), 2);
    lent.deregister();
    world.b().pause(false);
    EXPECT_TRUE(wait_unmapped(world.a(), lent.buffer.file()));
  });
}

}  // namespace fairway::conformance
