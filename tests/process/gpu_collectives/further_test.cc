#include <cmath>
#include <csignal>
#include <numeric>
#include <random>

#include "collectives/gpu/plan.h"
#include "process/gpu_collectives/tries.h"

// What the further kernels do, beside the same on host memory: bits of sums, and all_to_allv of any counts.
namespace fairway {
namespace {

using namespace std::chrono_literals;

struct GpuFurther : testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuFurther, testing::Values(1, 2, 3, 5, 8));

std::vector<std::byte> random_bytes(std::mt19937& random, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::byte& each : out) each = static_cast<std::byte>(random() & 0xFF);
  return out;
}

// Any bits; of f32 and f64 small numbers, so that sums are no infinities.
std::vector<std::byte> random_values(std::mt19937& random, DataType type, std::size_t count) {
  if (type >= DataType::f8e4m3) return random_bytes(random, count);
  std::vector<std::byte> out(count * size_of(type));
  std::normal_distribution<double> normal(0, 3);
  for (std::size_t i = 0; i < count; ++i) put(out.data(), i, type, normal(random));
  return out;
}

// Of a NaN the bits are the hardware's.
bool is_same(const std::vector<std::byte>& a, const std::vector<std::byte>& b, DataType type) {
  for (std::size_t i = 0; i * size_of(type) < a.size(); ++i) {
    const double left = get(a.data(), i, type), right = get(b.data(), i, type);
    if (std::memcmp(&a[i * size_of(type)], &b[i * size_of(type)], size_of(type)) != 0 &&
        !(std::isnan(left) && std::isnan(right)))
      return false;
  }
  return true;
}

// A call on a stream, and then the same, reproducible, on memory of the host.
bool has_bits_of_host(GpuRank& rank, GpuStream stream, std::byte* place, Collective call, std::size_t seed) {
  std::mt19937 random(static_cast<unsigned>(seed * 97 + static_cast<std::size_t>(rank.group.rank())));
  const auto ranks = static_cast<std::size_t>(rank.group.size());
  const bool parts = call.kind == CollectiveKind::reduce_scatter;
  const bool here = call.kind != CollectiveKind::reduce || rank.group.rank() == call.root;
  const std::size_t bytes = call.count * size_of(call.type);
  const auto input = random_values(random, call.type, call.count * (parts ? ranks : 1));
  std::vector<std::byte> wanted(here ? bytes : 0);
  std::byte* const output = place + input.size() + 256;
  rank.fill(place, input);
  if (call.reduction == Reduction::premul_sum) call.factor = 0.37 + rank.group.rank();
  call.input = place;
  call.output = here ? output : nullptr;
  const std::string what = std::string(to_string(call.kind)) + " " + std::string(to_string(call.reduction)) + " of " +
                           std::to_string(call.count) + " " + std::string(to_string(call.type));
  if (!rank.expect(rank.group.stream_run(call, stream), what.c_str())) return false;
  if (!rank.synchronize(stream) || !rank.expect(rank.group.stream_status(), what.c_str())) return rank.fail(what);
  call.input = input.data();
  call.output = here ? wanted.data() : nullptr;
  call.reproducible = true;
  if (!rank.expect(rank.group.run(call), what.c_str())) return false;
  return is_same(rank.read(output, wanted.size()), wanted, call.type) ||
         rank.fail(what + ": other bits than on the host");
}

TEST_P(GpuFurther, SumsHaveTheBitsOfHosts) {
  run_gpu_ranks(GetParam(), 10min, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    std::byte* const place = rank.memory(8U << 20);
    std::size_t seed = 0;
    for (const DataType type : {DataType::f8e4m3, DataType::f8e5m2, DataType::f32, DataType::f64})
      for (const CollectiveKind kind :
           {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::reduce})
        for (int how = 0; how <= static_cast<int>(Reduction::premul_sum); ++how)
          for (const std::size_t count : {std::size_t{1}, std::size_t{333}, std::size_t{40'000}}) {
            Collective call{.kind = kind, .count = count, .type = type, .reduction = static_cast<Reduction>(how)};
            if (call.reduction == Reduction::custom) continue;
            call.root = static_cast<int>(count % static_cast<std::size_t>(rank.group.size()));
            if (!has_bits_of_host(rank, stream, place, call, ++seed)) return;
          }
  });
}

// Counts and offsets that all ranks can compute: of what `from` has for `to`.
struct Counts {
  Counts(int ranks, unsigned seed, std::size_t most) : size(static_cast<std::size_t>(ranks)) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < size * size; ++i) all.push_back(random() % 3 == 0 ? 0 : random() % (most + 1));
  }
  [[nodiscard]] std::size_t of(std::size_t from, std::size_t to) const { return all[from * size + to]; }
  std::size_t size;
  std::vector<std::size_t> all;
};

// One rank's part of an all_to_allv in bytes. Its blocks lie in any order, with gaps.
class Exchange {
 public:
  Exchange(GpuRank& rank, std::size_t room) : rank_(rank), input_(rank.memory(room)), output_(rank.memory(room)) {}
  void plan(const Counts& counts, std::size_t gap) {
    const auto me = static_cast<std::size_t>(rank_.group.rank());
    send_counts.clear(), send_offsets.clear(), receive_counts.clear(), receive_offsets.clear();
    std::size_t in = gap, out = gap;
    for (std::size_t other = 0; other < counts.size; ++other) {
      send_counts.push_back(counts.of(me, other));
      receive_counts.push_back(counts.of(other, me));
      send_offsets.push_back(in);
      receive_offsets.push_back(out);
      in += send_counts.back() + gap;
      out += receive_counts.back() + gap;
    }
    in_ = in, out_ = out;
  }
  static std::byte value(std::size_t from, std::size_t to, std::size_t at) {
    return static_cast<std::byte>(from * 31 + to * 7 + at * 3 + at / 256);
  }
  void fill() {
    const auto me = static_cast<std::size_t>(rank_.group.rank());
    std::vector<std::byte> bytes(in_);
    for (std::size_t to = 0; to < send_counts.size(); ++to)
      for (std::size_t i = 0; i < send_counts[to]; ++i) bytes[send_offsets[to] + i] = value(me, to, i);
    rank_.fill(input_, bytes);
    rank_.fill(output_, std::vector<std::byte>(out_, std::byte{0x77}));
  }
  [[nodiscard]] Collective call() const {
    Collective call{.kind = CollectiveKind::all_to_allv, .input = input_, .output = output_};
    call.send = {send_counts, send_offsets};
    call.receive = {receive_counts, receive_offsets};
    return call;
  }
  bool is_right() {
    const auto me = static_cast<std::size_t>(rank_.group.rank());
    std::vector<std::byte> want(out_, std::byte{0x77});
    for (std::size_t from = 0; from < receive_counts.size(); ++from)
      for (std::size_t i = 0; i < receive_counts[from]; ++i) want[receive_offsets[from] + i] = value(from, me, i);
    const auto got = rank_.read(output_, out_);
    for (std::size_t i = 0; i < out_; ++i)
      if (got[i] != want[i]) return rank_.fail("all_to_allv: byte " + std::to_string(i) + " is wrong");
    return true;
  }
  std::vector<std::size_t> send_counts, send_offsets, receive_counts, receive_offsets;

 private:
  GpuRank& rank_;
  std::byte *const input_, *const output_;
  std::size_t in_ = 0, out_ = 0;
};

void try_blocks(GpuRank& rank) {
  const GpuStream stream = rank.stream();
  Exchange exchange(rank, 24U << 20);
  for (const std::size_t most : {std::size_t{0}, std::size_t{40}, std::size_t{5000}, std::size_t{300'000}})
    for (unsigned turn = 0; turn < 4; ++turn) {
      exchange.plan(Counts(rank.group.size(), turn, most), turn % 2 == 0 ? 16 : turn);
      exchange.fill();
      if (!rank.expect(rank.group.stream_run(exchange.call(), stream), "all_to_allv")) return;
      if (!rank.synchronize(stream) || !rank.expect(rank.group.stream_status(), "all_to_allv")) return;
      if (!exchange.is_right()) return;
    }
  // One block that is much longer than the others: more rounds than fit at once.
  Counts skewed(rank.group.size(), 9, 3);
  skewed.all.back() = 2000;
  skewed.all[skewed.size - 1] = 7U << 20;
  exchange.plan(skewed, 1);
  exchange.fill();
  for (int i = 0; i < 2; ++i)
    if (!rank.expect(rank.group.stream_run(exchange.call(), stream), "one long block")) return;
  if (rank.synchronize(stream) && rank.expect(rank.group.stream_status(), "one long block")) (void)exchange.is_right();
}
TEST_P(GpuFurther, BlocksOfAnySizeArrive) {
  run_gpu_ranks(GetParam(), 10min, try_blocks);
}
TEST_P(GpuFurther, BlocksOfAnySizeArriveWithoutNvlink) {
  ::setenv("FAIRWAY_STANDIN_NO_NVLINK", "1", 1);
  run_gpu_ranks(GetParam(), 10min, try_blocks);
  ::unsetenv("FAIRWAY_STANDIN_NO_NVLINK");
}

// On two streams and in a graph, between calls of other kernels in the same places.
TEST(GpuFurtherStream, KernelsTakeTurnsInTheirPlaces) {
  for (const bool nvlink : {true, false}) {
    if (!nvlink) ::setenv("FAIRWAY_STANDIN_NO_NVLINK", "1", 1);
    run_gpu_ranks(3, 10min, [](GpuRank& rank) {
      const GpuStream a = rank.stream(), b = rank.stream();
      Graphs graphs(rank);
      Exchange first(rank, 4U << 20), second(rank, 4U << 20);
      first.plan(Counts(3, 1, 70'000), 3);
      second.plan(Counts(3, 2, 900), 16);
      first.fill();
      second.fill();
      std::byte* const place = rank.memory(400'000);
      std::vector<std::byte> ones(400'000, std::byte{0});
      for (std::size_t i = 0; i < 100'000; ++i) put(ones.data(), i, DataType::i32, 1);
      rank.fill(place, ones);
      Collective sum{.kind = CollectiveKind::all_reduce, .input = place, .output = place, .type = DataType::i32};
      const auto some = [&](GpuStream on, std::size_t count, Exchange& exchange) {
        sum.count = count;
        return rank.expect(rank.group.stream_run(sum, on), "a sum") &&
               rank.expect(rank.group.stream_run(exchange.call(), on), "all_to_allv");
      };
      const auto graph = graphs.capture(a, [&] { return some(a, 50, first); });
      if (graph == nullptr) return (void)rank.fail("no graph");
      for (int i = 0; i < 8; ++i) {
        if (!graphs.launch(graph, a) || !some(a, i % 2 == 0 ? 10 : 100'000, first)) return (void)rank.fail("a launch");
        if (!rank.expect(rank.group.stream_run(second.call(), b), "beside")) return;
      }
      if (!rank.synchronize(a) || !rank.synchronize(b)) return (void)rank.fail("the context is broken");
      if (!rank.expect(rank.group.stream_status(), "afterwards") || !first.is_right() || !second.is_right()) return;
      const auto sums = rank.read(place, 400'000);
      double want = 1;
      for (int i = 0; i < 16; ++i) want *= 3;
      if (get(sums.data(), 3, DataType::i32) != want || get(sums.data(), 99'999, DataType::i32) != 81)
        (void)rank.fail("sums between are wrong");
    });
  }
  ::unsetenv("FAIRWAY_STANDIN_NO_NVLINK");
}

TEST(GpuFurtherFailure, CountsThatDifferAreNamed) {
  for (const bool more : {false, true})
    run_gpu_ranks(3, 20s, [more](GpuRank& rank) {
      const GpuStream stream = rank.stream();
      Exchange exchange(rank, 1U << 20);
      exchange.plan(Counts(3, 4, 900), 16);
      exchange.fill();
      if (!rank.expect(rank.group.stream_run(exchange.call(), stream), "before") || !rank.synchronize(stream)) return;
      std::size_t& sent = exchange.send_counts[2];
      const std::size_t wanted = sent;
      sent = 50'000;
      if (rank.group.rank() == 2) exchange.receive_counts[2] = exchange.send_counts[2] = 0;
      if (rank.group.rank() == 2) exchange.receive_counts[0] = exchange.receive_counts[1] = 50'000;
      if (rank.group.rank() == 1) sent = more ? 50'001 : wanted % 7;  // and rank 2 expects 50'000
      if (rank.group.rank() != 2)
        exchange.receive_counts[static_cast<std::size_t>(rank.group.rank())] =
            exchange.send_counts[static_cast<std::size_t>(rank.group.rank())];
      if (!rank.expect(rank.group.stream_run(exchange.call(), stream), "the one that fails")) return;
      if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
      // Only rank 2 sees it; the others hear of it, rank 1 perhaps after all its bytes are gone.
      Status status = rank.group.stream_status();
      for (const auto end = std::chrono::steady_clock::now() + 10s; status && std::chrono::steady_clock::now() < end;) {
        std::this_thread::sleep_for(1ms);
        status = rank.group.stream_status();
      }
      if (status || rank.group.failure().rank != 1) return (void)rank.fail("blames " + status.to_string());
      if (rank.group.rank() != 2) return;
      const std::string words = "sends " + std::to_string(more ? 50'001 : wanted % 7) + " bytes, and this rank's";
      if (status.message().find(words) == std::string::npos || status.code() != ErrorCode::invalid_argument)
        (void)rank.fail(status.to_string());
    });
}

struct GpuFurtherFailures : testing::TestWithParam<CollectiveKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, GpuFurtherFailures,
                         testing::Values(CollectiveKind::reduce, CollectiveKind::gather, CollectiveKind::scatter,
                                         CollectiveKind::all_to_allv));

// Late, killed, and calling another count or root.
TEST_P(GpuFurtherFailures, ARankAtFaultIsNamed) {
  for (const char* const fault : {"late", "killed", "differs"})
    for (const std::size_t count : {std::size_t{10}, std::size_t{60'000}})
      run_gpu_ranks(
          3, 20s,
          [fault = std::string(fault), count](GpuRank& rank) {
            const GpuStream stream = rank.stream();
            std::byte *const input = rank.memory(count * 12), *const output = rank.memory(count * 12);
            std::vector<std::size_t> counts(3, count), offsets{0, count, 2 * count};
            Collective call{
                .kind = GetParam(), .input = input, .output = output, .count = count, .type = DataType::i32};
            if (GetParam() == CollectiveKind::all_to_allv) {
              call.count = 0;
              call.send = call.receive = {counts, offsets};
            }
            if (!rank.expect(rank.group.stream_run(call, stream), "before") || !rank.synchronize(stream)) return;
            if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
            call.timeout = fault == "differs" ? 20s : 500ms;
            if (rank.group.rank() == 2) {
              if (fault == "killed") ::raise(SIGKILL);
              if (fault == "late") return (void)rank.group.run({});
              call.root = 1;
              call.type = DataType::u32;
            }
            if (!rank.expect(rank.group.stream_run(call, stream), "the one that fails")) return;
            if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
            const Status status = rank.group.stream_status();
            if (status) return (void)rank.fail("it ended well");
            if (fault != "differs" && rank.group.failure().rank != 2) (void)rank.fail("blames " + status.to_string());
            if (fault == "differs" && status.code() != ErrorCode::invalid_argument) (void)rank.fail(status.to_string());
          },
          fault == std::string("killed") ? 2 : -1);
}

}  // namespace
}  // namespace fairway
