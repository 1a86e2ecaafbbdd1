#include <cstring>

#include "process/gpu_collectives/tries.h"

// Operations whose memory lies in windows, which the other ranks read where it is.
namespace fairway {
namespace {

using namespace std::chrono_literals;

void run_with_windows(int size, std::chrono::milliseconds timeout, const std::function<void(GpuRank&)>& body) {
  run_gpu_ranks(size, timeout, body, -1, {.windows_from = 1});
}
bool goes_by_window(GpuRank& rank, const Collective& call) {
  const std::string why = rank.group.explain_stream(call);
  return why.find("window") != std::string::npos ? true : rank.fail("does not go by a window: " + why);
}
WindowId show(GpuRank& rank, std::byte* memory, std::size_t bytes) {
  const auto window = rank.group.register_window(memory, bytes);
  return rank.expect(window.status(), "register_window") ? *window : WindowId{};
}
bool is_refused(GpuRank& rank, const Status& status, ErrorCode code, const char* word) {
  const std::string text = status.to_string();
  return status.code() == code && text.find(word) != std::string::npos ? true : rank.fail("not refused: " + text);
}

struct GpuWindow : testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuWindow, testing::Values(1, 2, 3, 4, 8));

TEST_P(GpuWindow, EveryKindTypeAndPlaceIsRight) {
  run_with_windows(GetParam(), 30s, [](GpuRank& rank) {
    Tries tries(rank);
    for (const int place : {0, 1})
      if (!show(rank, tries.place(place), Tries::kRoom)) return;
    for (const CollectiveKind kind : kKinds)
      for (const DataType type : kAllTypes)
        for (const Reduction reduction : {Reduction::sum, Reduction::average})
          for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{3001}}) {
            if (!is_combining(kind) && (reduction != Reduction::sum || type != DataType::f32)) continue;
            for (const std::size_t off : {std::size_t{0}, std::size_t{8}, size_of(type)})
              for (const bool in_place : {false, true})
                if (!tries.run({kind, type, reduction, count, in_place, off})) return;
          }
    Collective call{.kind = CollectiveKind::all_gather, .count = 1, .type = DataType::f32};
    call.input = tries.place(0);
    call.output = tries.place(1);
    if (rank.group.size() > 1) (void)goes_by_window(rank, call);
  });
}

// Among more than two a broadcast goes in chunks, here in two.
TEST(GpuWindows, ALongBroadcastIsPassedOn) {
  run_with_windows(3, 30s, [](GpuRank& rank) {
    constexpr std::size_t kBytes = (std::size_t{48} << 20) + 12;
    std::byte* const place = rank.memory(kBytes);
    if (!show(rank, place, kBytes)) return;
    const GpuStream stream = rank.stream();
    Collective call{.kind = CollectiveKind::broadcast, .count = kBytes / 4, .type = DataType::u32};
    call.input = call.output = place;
    call.root = 1;
    std::vector<std::byte> values(kBytes);
    for (std::size_t i = 0; i < kBytes / 4; ++i) {
      const auto value = static_cast<std::uint32_t>(i * 2654435761U + i / 251);
      std::memcpy(values.data() + i * 4, &value, 4);
    }
    if (rank.group.rank() == 1) rank.fill(place, values);
    if (!goes_by_window(rank, call) || !rank.expect(rank.group.stream_run(call, stream), "broadcast")) return;
    if (!rank.synchronize(stream) || !rank.expect(rank.group.stream_status(), "broadcast")) return;
    if (rank.read(place, kBytes) != values) (void)rank.fail("other bytes came");
  });
}

// A graph has the copies, and the streams beside the caller's, as the calls have.
TEST(GpuWindows, GraphsHaveThemToo) {
  run_with_windows(3, 30s, [](GpuRank& rank) {
    constexpr std::size_t kCount = 1000;
    const auto size = static_cast<std::size_t>(rank.group.size());
    std::byte *const in = rank.memory(kCount * 4), *const out = rank.memory(kCount * 4 * size);
    if (!show(rank, in, kCount * 4) || !show(rank, out, kCount * 4 * size)) return;
    const GpuStream a = rank.stream(), b = rank.stream();
    Graphs graphs(rank);
    Collective sum{
        .kind = CollectiveKind::all_reduce, .input = in, .output = in, .count = kCount, .type = DataType::i32};
    const Collective gather{
        .kind = CollectiveKind::all_gather, .input = in, .output = out, .count = kCount, .type = DataType::i32};
    std::vector<std::byte> ones(kCount * 4);
    for (std::size_t i = 0; i < kCount; ++i) put(ones.data(), i, DataType::i32, rank.group.rank() + 1);
    rank.fill(in, ones);
    const sys::cuda::ReadyGraph graph = graphs.capture(
        a, [&] { return rank.group.stream_run(sum, a).is_ok() && rank.group.stream_run(gather, a).is_ok(); });
    if (graph == nullptr) return (void)rank.fail("no graph");
    for (int i = 0; i < 3; ++i)
      if (!graphs.launch(graph, i % 2 == 0 ? a : b) || !rank.synchronize(i % 2 == 0 ? a : b))
        return (void)rank.fail("a launch");
    if (!rank.expect(rank.group.stream_status(), "afterwards")) return;
    const auto got = rank.read(out, kCount * 4 * size);
    for (std::size_t i = 0; i < kCount * size; ++i)
      if (get(got.data(), i, DataType::i32) != 54)  // 6, then three times as much, twice
        return (void)rank.fail("element " + std::to_string(i) + " is " +
                               std::to_string(get(got.data(), i, DataType::i32)));
  });
}

// Memory at another offset, or of which only some ranks have shown theirs: both sides are told, and nothing is mixed
// up.
TEST(GpuWindows, OtherPlacesAreFound) {
  for (const bool elsewhere : {false, true})
    run_with_windows(2, 20s, [elsewhere](GpuRank& rank) {
      std::byte* const place = rank.memory(4096);
      std::byte* const other = rank.memory(4096);
      if (!show(rank, place, 4096)) return;
      const GpuStream stream = rank.stream();
      Collective call{.kind = CollectiveKind::all_reduce, .count = 64, .type = DataType::f32};
      call.input = call.output = rank.group.rank() == 0 ? place : elsewhere ? other : place + 64;
      if (!rank.expect(rank.group.stream_run(call, stream), "enqueuing")) return;
      if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
      (void)is_refused(rank, rank.group.stream_status(), ErrorCode::invalid_argument, "has called something else");
    });
}

// Who gives up may use its memory again: who comes late changes none of it, and ends with an error.
TEST(GpuWindows, WhoComesLateHarmsNobody) {
  run_with_windows(2, 30s, [](GpuRank& rank) {
    constexpr std::size_t kBytes = 64 * 1024;
    std::byte* const place = rank.memory(2 * kBytes);
    if (!show(rank, place, 2 * kBytes)) return;
    const GpuStream stream = rank.stream();
    Collective call{.kind = CollectiveKind::all_gather, .count = kBytes, .type = DataType::u8};
    call.input = place + static_cast<std::size_t>(rank.group.rank()) * kBytes;
    call.output = place;
    call.timeout = 200ms;
    rank.fill(place, std::vector<std::byte>(2 * kBytes, std::byte{1}));
    const bool late = rank.group.rank() == 1;
    if (late) std::this_thread::sleep_for(1s);
    const std::vector<std::byte> mine(2 * kBytes, std::byte{9});
    const Status started = rank.group.stream_run(call, stream);
    if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
    const Status ended = started ? rank.group.stream_status() : started;
    if (ended) return (void)rank.fail("it ended well");
    if (late) return;
    rank.fill(place, mine);
    std::this_thread::sleep_for(2s);  // by then the other one has come and gone
    if (rank.read(place, 2 * kBytes) != mine) (void)rank.fail("who came late wrote into it");
  });
}

TEST(GpuWindows, AreTakenBack) {
  run_with_windows(3, 20s, [](GpuRank& rank) {
    std::byte* const place = rank.memory(8192);
    const WindowId first = show(rank, place, 8192);
    if (!rank.expect(rank.group.deregister_window(first), "deregister_window")) return;
    Collective call{.kind = CollectiveKind::all_reduce, .count = 64, .type = DataType::f32};
    call.input = call.output = place;
    if (rank.group.explain_stream(call).find("window") != std::string::npos) return (void)rank.fail("is still shown");
    if (!is_refused(rank, rank.group.deregister_window(first), ErrorCode::not_found, "no window")) return;
    if (!is_refused(rank, rank.group.deregister_window({99}), ErrorCode::not_found, "no window")) return;
    const WindowId second = show(rank, place, 8192), third = show(rank, place, 4096);
    const Status mixed = rank.group.deregister_window(rank.group.rank() == 1 ? third : second);
    if (!is_refused(rank, mixed, ErrorCode::invalid_argument, "ends window")) return;
    if (second.number == first.number) return (void)rank.fail("a number came again");
    const GpuStream stream = rank.stream();
    if (goes_by_window(rank, call) && rank.expect(rank.group.stream_run(call, stream), "a sum") &&
        rank.synchronize(stream))
      (void)rank.expect(rank.group.stream_status(), "a sum");
  });
}

TEST(GpuWindows, WhatCannotBeShownIsRefusedOnAllRanks) {
  run_with_windows(2, 20s, [](GpuRank& rank) {
    std::byte* const place = rank.memory(4096);
    std::vector<std::byte> ordinary(4096);
    const bool is_first = rank.group.rank() == 0;
    if (!is_refused(rank, rank.group.deregister_window({1}), ErrorCode::not_found, "no windows")) return;
    const auto mixed = rank.group.register_window(is_first ? place : ordinary.data(), 4096);
    if (!is_refused(rank, mixed.status(), ErrorCode::invalid_argument, "a window is memory of GPU")) return;
    const auto none = rank.group.register_window(is_first ? place : nullptr, 4096);
    if (none) return (void)rank.fail("nothing was shown");
    if (show(rank, place, 4096).number != 1) (void)rank.fail("an attempt that failed took a number");
  });
}

}  // namespace
}  // namespace fairway
