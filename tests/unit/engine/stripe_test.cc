#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "engine/tables/route.h"
#include "links.h"
#include "sim/simulation.h"

namespace fairway::engine {
namespace {

using transport::Op;
using transport::Shape;

constexpr RegionId kNear{1, 1};
constexpr RemoteRegionId kFar{2, 1};

// A layout and what it borrows.
struct Work {
  Layout layout;
  std::vector<Extent> extents;
  std::vector<std::uint64_t> near_index, far_index;
};

void some_layout(sim::Random& random, Work& work) {
  const std::uint64_t count = random.between(1, 20);
  const std::uint64_t length = random.chance(100) ? 0 : random.between(1, 5000);
  switch (random.below(4)) {
    case 0: work.layout = Extent{{kNear, random.below(100), length * count}, {kFar, random.below(100)}}; return;
    case 1:
      for (std::uint64_t i = 0; i < count; ++i)
        work.extents.push_back({{kNear, i * 10'000, random.below(9'000)}, {kFar, i * 10'000}});
      work.layout = std::span<const Extent>(work.extents);
      return;
    case 2: work.layout = Strided{{{kNear, 7, length}, {kFar, 9}}, length + 3, length + 5, count}; return;
    default:
      for (std::uint64_t i = 0; i < count; ++i) {
        work.near_index.push_back(count - 1 - i);
        work.far_index.push_back(i);
      }
      work.layout = Paged{kNear, kFar, length, length, length, work.near_index, work.far_index};
  }
}

// Marks a piece's bytes by (block, offset); false when one of them was marked before or is of no block.
bool mark(const Layout& layout, const Piece& piece, std::vector<std::vector<bool>>& seen) {
  bool fresh = piece.count == 1 || (piece.offset == 0 && is_regular(layout));
  for (std::uint64_t b = 0; b < piece.count; ++b) {
    if (piece.block + b >= seen.size()) return false;
    auto& block = seen[piece.block + b];
    if (piece.offset + piece.length > block.size()) return false;
    for (std::uint64_t i = 0; i < piece.length; ++i) {
      fresh &= !block[piece.offset + i];
      block[piece.offset + i] = true;
    }
  }
  return fresh;
}

TEST(Stripe, EveryByteExactlyOnce) {
  sim::Random random(42);
  for (int round = 0; round < 1500; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Work work;
    some_layout(random, work);
    const std::uint64_t blocks = block_count(work.layout);
    std::vector<std::vector<bool>> seen(blocks);
    for (std::uint64_t i = 0; i < blocks; ++i) seen[i].assign(block_at(work.layout, i).length, false);
    Links links(random.between(1, 5));
    const bool messages = random.chance(200);
    for (std::size_t i = 0; i < links.views.size(); ++i) {
      if (messages) links.capabilities[i].operations = mask(Op::message);
      links.capabilities[i].max_slice_bytes = random.between(1, 8000);
      links.capabilities[i].shapes = static_cast<std::uint8_t>(1 | random.below(8));
      links.views[i].bytes_per_second = random.between(5, 10) * 1'000'000'000;
      links.views[i].free_slots = static_cast<std::uint32_t>(random.below(5));
    }
    const Route choice = route({Op::write, random.chance(500) ? 1u << 20 : 10u, 1}, links.views);
    ASSERT_NE(choice.method, Method::none);
    Cursor cursor;
    std::array<Piece, 7> pieces;
    const std::uint64_t payload = random.between(100, 992);
    for (int calls = 0; cursor.block < blocks; ++calls) {
      ASSERT_LT(calls, 200'000);
      const auto before = links.views;
      const std::size_t count = stripe(work.layout, blocks, cursor, choice, links.views, payload,
                                       std::span(pieces).first(random.between(1, pieces.size())));
      std::map<std::uint8_t, std::uint32_t> taken;
      for (const Piece& piece : std::span(pieces).first(count)) {
        ASSERT_TRUE(mark(work.layout, piece, seen)) << piece.block << '+' << piece.offset << ' ' << piece.length;
        ASSERT_GT(piece.length, 0u);
        ASSERT_LE(piece.length, messages ? payload : links.capabilities[piece.link].max_slice_bytes);
        ASSERT_LE(piece.bytes(), std::max(links.capabilities[piece.link].max_slice_bytes, piece.length));
        ASSERT_NE(std::find(choice.chosen().begin(), choice.chosen().end(), piece.link), choice.chosen().end());
        ++taken[piece.link];
      }
      for (const auto& [link, pieces_of_it] : taken) ASSERT_LE(pieces_of_it, before[link].free_slots);
      if (count == 0 && cursor.block < blocks)
        for (LinkView& view : links.views) view.free_slots = 3;  // they made progress
    }
    for (const auto& block : seen) EXPECT_EQ(std::count(block.begin(), block.end(), false), 0);
  }
}

TEST(Stripe, BytesFollowTheRates) {
  Links links(2);
  links.views[0].bytes_per_second = 30'000'000'000;
  links.views[1].bytes_per_second = 10'000'000'000;
  const Layout layout = Extent{{kNear, 0, 40u << 20}, {kFar, 0}};
  const Route choice = route({Op::write, 40u << 20, 1}, links.views);
  Cursor cursor;
  std::array<Piece, 64> pieces;
  const std::size_t count = stripe(layout, 1, cursor, choice, links.views, 992, pieces);
  std::uint64_t bytes[2] = {};
  for (const Piece& piece : std::span(pieces).first(count)) bytes[piece.link] += piece.bytes();
  EXPECT_EQ(bytes[0] + bytes[1], 40u << 20);
  EXPECT_NEAR(static_cast<double>(bytes[0]) / static_cast<double>(bytes[1]), 3.0, 0.35);
}

TEST(Stripe, ALinkThatIsNotChosenGetsNothing) {
  Links links(3);
  links.views[2].bytes_per_second = 1'000'000;
  const Layout layout = Extent{{kNear, 0, 8u << 20}, {kFar, 0}};
  const Route choice = route({Op::write, 8u << 20, 1}, links.views);
  Cursor cursor;
  std::array<Piece, 64> pieces;
  const std::size_t count = stripe(layout, 1, cursor, choice, links.views, 992, pieces);
  ASSERT_EQ(cursor.block, 1u);
  for (const Piece& piece : std::span(pieces).first(count)) EXPECT_NE(piece.link, 2);
}

TEST(Stripe, NoRoomCutsNothingAndTheCursorStays) {
  Links links(2);
  const Layout layout = Extent{{kNear, 0, 8u << 20}, {kFar, 0}};
  const Route choice = route({Op::write, 8u << 20, 1}, links.views);
  for (LinkView& view : links.views) view.free_slots = 0;
  Cursor cursor{0, 17};
  std::array<Piece, 4> pieces;
  EXPECT_EQ(stripe(layout, 1, cursor, choice, links.views, 992, pieces), 0u);
  EXPECT_EQ(cursor.block, 0u);
  EXPECT_EQ(cursor.offset, 17u);
}

TEST(Stripe, RepeatedBlocksShareASliceOnlyWhereTheLinkTakesTheShape) {
  for (const bool native : {false, true}) {
    Links links(1);
    links.capabilities[0].shapes = native ? mask(Shape::contiguous, Shape::strided) : mask(Shape::contiguous);
    const Layout layout = Strided{{{kNear, 0, 64}, {kFar, 0}}, 128, 64, 60};
    const Route choice = route({Op::write, 3840, 1}, links.views);
    Cursor cursor;
    std::array<Piece, 64> pieces;
    EXPECT_EQ(stripe(layout, 60, cursor, choice, links.views, 992, pieces), native ? 1u : 60u);
    EXPECT_EQ(cursor.block, 60u);
  }
}

TEST(Stripe, EmptyBlocksGiveNoPiece) {
  Links links(1);
  const std::vector<Extent> list{{{kNear, 0, 0}, {kFar, 0}}, {{kNear, 0, 5}, {kFar, 0}}, {{kNear, 0, 0}, {kFar, 0}}};
  const Layout layout = std::span<const Extent>(list);
  const Route choice = route({Op::write, 5, 1}, links.views);
  Cursor cursor;
  std::array<Piece, 4> pieces;
  ASSERT_EQ(stripe(layout, 3, cursor, choice, links.views, 992, pieces), 1u);
  EXPECT_EQ(pieces[0].block, 1u);
  EXPECT_EQ(stripe(layout, 3, cursor, choice, links.views, 992, pieces), 0u);
  EXPECT_EQ(cursor.block, 3u);
}

TEST(Stripe, EmptyBlocksNeedNoRoom) {
  Links links(1);
  links.views[0].free_slots = 0;
  const std::vector<Extent> list{{{kNear, 0, 0}, {kFar, 0}}, {{kNear, 0, 5}, {kFar, 0}}};
  const Layout layout = std::span<const Extent>(list);
  const Route choice = route({Op::write, 5, 1}, links.views);
  Cursor cursor;
  EXPECT_EQ(stripe(layout, 2, cursor, choice, links.views, 992, {}), 0u);
  EXPECT_EQ(cursor.block, 1u);  // else its owner would take the empty one for a turn that goes on, again and again
}

TEST(Stripe, EmptyBlocksCostNothingHoweverMany) {
  Links links(1);
  Route route;
  route.method = Method::native;
  route.count = 1;
  std::array<Piece, 16> pieces;
  Cursor cursor;
  const std::uint64_t most = ~std::uint64_t{0};
  const Layout strided = Strided{{{kNear, 0, 0}, {kFar, 0}}, 0, 0, most};
  EXPECT_EQ(stripe(strided, most, cursor, route, links.views, 1024, pieces), 0u);
  EXPECT_EQ(cursor.block, most);
  // Of a list each is looked at: so many at once, and then the caller's step goes on elsewhere.
  std::vector<Extent> list(3 * kEmptyAtOnce);
  list.push_back({{kNear, 0, 8}, {kFar, 0}});
  const Layout layout = std::span<const Extent>(list);
  cursor = {};
  std::size_t calls = 0, cut = 0;
  for (; cursor.block < list.size() && calls < 10; ++calls) {
    const std::uint64_t before = cursor.block;
    cut += stripe(layout, list.size(), cursor, route, links.views, 1024, pieces);
    EXPECT_LE(cursor.block - before, kEmptyAtOnce + 1);
    EXPECT_GT(cursor.block, before);
  }
  EXPECT_EQ(cut, 1u);
  EXPECT_EQ(pieces[0].block, 3 * kEmptyAtOnce);
}

}  // namespace
}  // namespace fairway::engine
