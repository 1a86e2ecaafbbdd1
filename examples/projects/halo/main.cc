// Halo exchange: a grid is cut into tiles, one for each of 2 x 2 processes, and each step needs the neighbours' edges.
// Rows go as one piece, columns as blocks at equal distances. The result equals that of one process, bit for bit.
//   halo [cells along a tile's side] [steps]
#include <algorithm>
#include <array>

#include "ranks.h"

namespace {

constexpr int kSide = 2;  // tiles along the grid's side
enum Edge : std::uint32_t { top, bottom, left, right };

// A square of cells with a frame of one cell around it, which the neighbours fill. Outside the grid it stays 0.
struct Square {
  std::uint64_t side;
  std::span<float> cells;
  std::uint64_t at(std::uint64_t row, std::uint64_t column) const { return row * (side + 2) + column; }

  void begin(std::uint64_t first_row, std::uint64_t first_column) const {
    for (std::uint64_t row = 1; row <= side; ++row)
      for (std::uint64_t column = 1; column <= side; ++column)
        cells[at(row, column)] = static_cast<float>((first_row + row) * 31 % 17 + (first_column + column) * 7 % 13);
  }
  // One Jacobi step: each cell becomes the mean of its neighbours.
  void step_from(const Square& old) const {
    for (std::uint64_t row = 1; row <= side; ++row)
      for (std::uint64_t column = 1; column <= side; ++column)
        cells[at(row, column)] = 0.25f * (old.cells[at(row - 1, column)] + old.cells[at(row + 1, column)] +
                                          old.cells[at(row, column - 1)] + old.cells[at(row, column + 1)]);
  }
};

void compute(int rank, Ranks& all, std::uint64_t side, std::uint64_t steps) {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const std::uint64_t cells = (side + 2) * (side + 2), line = (side + 2) * sizeof(float);
  std::array<fairway::Region, 2> regions;  // a neighbour is at most one step ahead: it writes into the other one
  std::array<Square, 2> tiles;
  for (std::size_t i = 0; i < 2; ++i) {
    regions[i] = need(engine.allocate(cells * sizeof(float), fairway::Access::write));
    tiles[i] = {side, {reinterpret_cast<float*>(regions[i].address), cells}};
    need(engine.publish(i == 0 ? "even" : "odd", regions[i]));
  }
  const int row = rank / kSide, column = rank % kSide;
  tiles[0].begin(static_cast<std::uint64_t>(row) * side, static_cast<std::uint64_t>(column) * side);

  struct Neighbour {
    Edge mine, theirs;  // which edge of this tile is sent, and which of theirs that becomes
    fairway::PeerId peer;
    std::array<fairway::RemoteRegion, 2> tiles;
  };
  std::vector<Neighbour> neighbours;
  const std::vector<fairway::PeerId> peers = all.connect(engine, rank);
  const auto join = [&](bool exists, int other, Edge mine, Edge theirs) {
    if (!exists) return;
    const fairway::PeerId peer = peers[static_cast<std::size_t>(other)];
    neighbours.push_back({mine, theirs, peer, {need(engine.lookup(peer, "even")), need(engine.lookup(peer, "odd"))}});
  };
  join(row > 0, rank - kSide, top, bottom);
  join(row + 1 < kSide, rank + kSide, bottom, top);
  join(column > 0, rank - 1, left, right);
  join(column + 1 < kSide, rank + 1, right, left);

  // The edge of a tile that is sent, and the place in a neighbour's frame where it goes, in bytes.
  const auto sent = [&](Edge edge) {
    const Square& tile = tiles[0];
    return sizeof(float) * (edge == bottom ? tile.at(side, 1) : edge == right ? tile.at(1, side) : tile.at(1, 1));
  };
  const auto filled = [&](Edge edge) {
    const Square& tile = tiles[0];
    return sizeof(float) * (edge == top      ? tile.at(0, 1)
                            : edge == bottom ? tile.at(side + 1, 1)
                            : edge == left   ? tile.at(1, 0)
                                             : tile.at(1, side + 1));
  };

  all.meet();
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t step = 0; step < steps; ++step) {
    const std::size_t now = step % 2;
    std::vector<fairway::TransferId> moving;
    for (const Neighbour& to : neighbours) {
      const bool is_row = to.mine == top || to.mine == bottom;
      fairway::Strided edge;
      edge.first = {.local = {regions[now].id, sent(to.mine), (is_row ? side : 1) * sizeof(float)},
                    .remote = {to.tiles[now].id, filled(to.theirs)}};
      edge.local_stride = edge.remote_stride = line;
      edge.count = is_row ? 1 : side;
      moving.push_back(need(engine.write(to.peer, edge, {.notify = fairway::notify_counter(to.theirs)})));
    }
    for (const Neighbour& from : neighbours) need(engine.wait_counter(from.mine, step + 1, kSoon));
    for (const fairway::TransferId id : moving) need(need(engine.wait(id)).status);
    tiles[1 - now].step_from(tiles[now]);
  }
  all.meet();
  const double took = seconds_since(start);

  // The whole grid by one process.
  const std::uint64_t whole = kSide * side, framed = (whole + 2) * (whole + 2);
  std::array<std::vector<float>, 2> memory = {std::vector<float>(framed), std::vector<float>(framed)};
  const std::array<Square, 2> grids = {Square{whole, memory[0]}, Square{whole, memory[1]}};
  grids[0].begin(0, 0);
  for (std::uint64_t step = 0; step < steps; ++step) grids[1 - step % 2].step_from(grids[step % 2]);
  const Square &mine = tiles[steps % 2], &reference = grids[steps % 2];
  for (std::uint64_t r = 1; r <= side; ++r)
    for (std::uint64_t c = 1; c <= side; ++c)
      need(mine.cells[mine.at(r, c)] == reference.cells[reference.at(static_cast<std::uint64_t>(row) * side + r,
                                                                     static_cast<std::uint64_t>(column) * side + c)],
           "a cell is wrong");
  if (rank == 0)
    std::printf("%llu steps of %d tiles of %llu x %llu cells: %.1f us a step, every cell right\n",
                static_cast<unsigned long long>(steps), all.count(), static_cast<unsigned long long>(side),
                static_cast<unsigned long long>(side), took * 1e6 / static_cast<double>(steps));
  all.meet();
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = numbers(argc, argv, {{"SIDE", 256, 1, 16'384}, {"STEPS", 200, 1, 100'000'000}});
  const std::uint64_t side = given[0], steps = given[1];
  return Ranks::run(kSide * kSide, [&](int rank, Ranks& all) { compute(rank, all, side, steps); });
}
