#include <array>
#include <atomic>
#include <cstring>
#include <string>

#include "fairway/fairway.h"

#include "two_engines.h"

// The C ABI as a caller in another language uses it: every call, versions of structs, and arguments that are wrong.
namespace c_abi {
namespace {

TEST_F(CAbi, CodesAreTheCppOnes) {
  for (int code = 0; code <= FAIRWAY_SYSTEM_ERROR; ++code)
    EXPECT_EQ(to_string(static_cast<fairway::ErrorCode>(code)), fairway_code_name(code));
  EXPECT_EQ(fairway::ErrorCode::system_error, static_cast<fairway::ErrorCode>(FAIRWAY_SYSTEM_ERROR));
  EXPECT_EQ(fairway::ErrorCode::peer_dead, static_cast<fairway::ErrorCode>(FAIRWAY_PEER_DEAD));
  EXPECT_STREQ("unknown_error", fairway_code_name(-1));
  EXPECT_STREQ("unknown_error", fairway_code_name(1000));
}

TEST_F(CAbi, EveryLayoutMovesItsBytes) {
  fairway_request one = request();
  EXPECT_EQ(4096u, move(one).bytes);
  EXPECT_TRUE(same(0, 0, 4096));

  fairway_request list = request();
  const std::array<fairway_extent, 2> extents{
      {{{draft.id, 4096, 100}, {remote.id, 5000}}, {{draft.id, 8192, 50}, {remote.id, 6000}}}};
  list.layout = FAIRWAY_EXTENTS;
  list.extents = extents.data();
  list.extent_count = extents.size();
  EXPECT_EQ(150u, move(list).bytes);
  EXPECT_TRUE(same(4096, 5000, 100) && same(8192, 6000, 50));

  fairway_request strided = request();
  strided.layout = FAIRWAY_STRIDED;
  strided.extent = {{draft.id, 0, 64}, {remote.id, 16384}};
  strided.local_stride = 128;
  strided.remote_stride = 64;
  strided.count = 10;
  EXPECT_EQ(640u, move(strided).bytes);
  EXPECT_TRUE(same(0, 16384, 64) && same(9 * 128, 16384 + 9 * 64, 64));

  fairway_request paged = request();
  const std::array<std::uint64_t, 3> from{3, 1, 2}, to{10, 12, 11};
  paged.layout = FAIRWAY_PAGED;
  paged.page_bytes = paged.local_unit = paged.remote_unit = 4096;
  paged.pages = 3;
  paged.local_index = from.data();
  paged.remote_index = to.data();
  EXPECT_EQ(3 * 4096u, move(paged).bytes);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(same(from[i] * 4096, to[i] * 4096, 4096));
}

TEST_F(CAbi, NotifiesCountsAndAdds) {
  fairway_request told = request();
  told.notify = FAIRWAY_NOTIFY_EVENT;
  told.immediate = 42;
  told.message = reinterpret_cast<const std::uint8_t*>("hey");
  told.message_bytes = 3;
  move(told);
  ASSERT_EQ(FAIRWAY_OK, fairway_wait_notification(bob.get(), 1'000'000, nullptr));
  fairway_notification note{};
  ASSERT_EQ(1u, fairway_poll_notifications(bob.get(), &note, 1));
  EXPECT_EQ(42u, note.immediate);
  EXPECT_EQ("hey", std::string(reinterpret_cast<char*>(note.message), note.message_bytes));

  fairway_request counted = request();
  counted.notify = FAIRWAY_NOTIFY_COUNTER;
  counted.immediate = 5;
  move(counted);
  EXPECT_EQ(FAIRWAY_OK, fairway_wait_counter(bob.get(), 5, 1, 1'000'000, nullptr));
  EXPECT_EQ(1u, fairway_counter(bob.get(), 5));
  fairway_error* error = nullptr;
  EXPECT_EQ(FAIRWAY_TIMED_OUT, fairway_wait_counter(bob.get(), 5, 2, 1000, &error));
  EXPECT_NE(std::string::npos, text_of(error).find("stands at 1 of 2"));

  std::memset(inbox.address, 0, 16);
  fairway_request add = request();
  add.operation = FAIRWAY_FETCH_ADD;
  add.target = {remote.id, 8};
  add.operand = 3;
  EXPECT_EQ(0u, move(add).old_value);
  EXPECT_EQ(3u, move(add).old_value);
}

TEST_F(CAbi, CallbacksAndPollingGiveEachCompletionOnce) {
  struct Seen {
    std::atomic<int> calls{0};
    std::uint64_t bytes = 0;
  } seen;
  fairway_request called = request();
  called.deliver = FAIRWAY_TO_CALLBACK;
  called.user_data = &seen;
  called.callback = [](const fairway_completion* done, void* data) {
    auto* counted = static_cast<Seen*>(data);
    counted->bytes = done->user_data == data && done->code == FAIRWAY_OK ? done->bytes : 0;
    counted->calls.fetch_add(1);
    counted->calls.notify_all();
  };
  fairway_transfer id{};
  ASSERT_EQ(FAIRWAY_OK, submit(called, &id));
  seen.calls.wait(0);
  EXPECT_EQ(1, seen.calls.load());
  EXPECT_EQ(4096u, seen.bytes);

  fairway_request polled = request();
  polled.deliver = FAIRWAY_TO_POLL;
  polled.user_data = &polled;
  ASSERT_EQ(FAIRWAY_OK, submit(polled, &id));
  EXPECT_GE(fairway_fd(alice.get()), 0);
  std::array<fairway_completion, 4> done{};
  std::size_t found = 0;
  while (found == 0) found = fairway_poll(alice.get(), done.data(), done.size());
  EXPECT_EQ(1u, found);
  EXPECT_EQ(&polled, done[0].user_data);
}

TEST_F(CAbi, LocalCompletionIsForSends) {
  fairway_request local = request();
  local.local_completion = 1;
  fairway_transfer id{};
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, submit(local, &id));
  local.operation = FAIRWAY_SEND;
  local.extent.local.length = 64;
  local.extent.remote = {};
  ASSERT_EQ(FAIRWAY_OK, submit(local, &id));  // nobody receives it
  fairway_completion done{};
  EXPECT_EQ(FAIRWAY_OK, fairway_wait(alice.get(), id, 5'000'000, &done, nullptr));
  EXPECT_EQ(FAIRWAY_OK, done.code);
}

TEST_F(CAbi, StructsOfOtherVersionsAreTakenOrRefusedInWords) {
  struct Longer {
    fairway_options known;
    std::uint64_t added = 0;
  } longer;
  fairway_options_init(&longer.known);
  longer.known.struct_size = sizeof longer;
  fairway_engine* opened = nullptr;
  ASSERT_EQ(FAIRWAY_OK, fairway_open(&longer.known, &opened, nullptr));
  fairway_engine_free(opened);
  fairway_options older;
  fairway_options_init(&older);
  older.struct_size = offsetof(fairway_options, keep_links_awake);  // of the first version
  ASSERT_EQ(FAIRWAY_OK, fairway_open(&older, &opened, nullptr));
  fairway_engine_free(opened);
  longer.added = 1;
  fairway_error* error = nullptr;
  EXPECT_EQ(FAIRWAY_UNSUPPORTED, fairway_open(&longer.known, &opened, &error));
  EXPECT_NE(std::string::npos, text_of(error).find("does not know"));

  for (const std::size_t wrong : {std::size_t{0}, std::size_t{8}, SIZE_MAX}) {
    fairway_options short_one;
    fairway_options_init(&short_one);
    short_one.struct_size = wrong;
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_open(&short_one, &opened, &error));
    EXPECT_NE(std::string::npos, text_of(error).find("struct_size"));
    fairway_region region{};
    region.struct_size = wrong;
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_allocate(alice.get(), 4096, 0, &region, nullptr));
    fairway_request asked = request();
    asked.struct_size = wrong;
    fairway_transfer id;
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, submit(asked, &id));
  }
  const fairway_metrics* metrics = fairway_metrics_get(alice.get(), 0);
  EXPECT_EQ(1u, metrics->regions) << "what was refused must not have been allocated";
  fairway_metrics_free(const_cast<fairway_metrics*>(metrics));
}

TEST_F(CAbi, RefusesWhatNoEnumHas) {
  fairway_transfer id;
  const auto refused = [&](auto&& change) {
    fairway_request wrong = request();
    change(wrong);
    fairway_error* error = nullptr;
    EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, submit(wrong, &id, &error));
    EXPECT_FALSE(text_of(error).empty());
  };
  refused([](fairway_request& r) { r.operation = 6; });
  refused([](fairway_request& r) { r.operation = -1; });
  refused([](fairway_request& r) { r.layout = 4; });
  refused([](fairway_request& r) { r.notify = 9; });
  refused([](fairway_request& r) { r.priority = 3; });
  refused([](fairway_request& r) { r.deliver = 3; });
  refused([](fairway_request& r) { r.deliver = FAIRWAY_TO_CALLBACK; });
  refused([](fairway_request& r) { r.message_bytes = 3; });
  refused([](fairway_request& r) { r.layout = FAIRWAY_EXTENTS, r.extent_count = 2; });
  refused([](fairway_request& r) { r.layout = FAIRWAY_PAGED, r.pages = 2; });
  fairway_region region = sized<fairway_region>();
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_allocate(alice.get(), 4096, 8, &region, nullptr));
  fairway_options options;
  fairway_options_init(&options);
  options.progress = 2;
  fairway_engine* opened = nullptr;
  fairway_error* error = nullptr;
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_open(&options, &opened, &error));
  EXPECT_NE(std::string::npos, text_of(error).find("progress"));
  EXPECT_EQ(nullptr, opened);
}

TEST_F(CAbi, NullNeverCrashes) {
  fairway_error_free(nullptr);
  fairway_engine_free(nullptr);
  fairway_loopback_free(nullptr);
  fairway_explanation_free(nullptr);
  fairway_metrics_free(nullptr);
  fairway_peer_event_clear(nullptr);
  fairway_close(nullptr);
  EXPECT_STREQ("", fairway_error_text(nullptr));
  EXPECT_STREQ("", fairway_address(nullptr));
  EXPECT_EQ(-1, fairway_fd(nullptr));
  EXPECT_EQ(0u, fairway_poll(nullptr, nullptr, 0));
  EXPECT_EQ(nullptr, fairway_metrics_get(nullptr, 0));
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_open(nullptr, nullptr, nullptr));
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_allocate(nullptr, 1, 0, &draft, nullptr));
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_connect(alice.get(), nullptr, 0, &peer, nullptr));
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_submit(alice.get(), nullptr, 1, nullptr, nullptr, nullptr));
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_unmap(nullptr, 1, nullptr));
}

TEST_F(CAbi, DescriptionsTravelAsBytes) {
  std::uint8_t* bytes = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(FAIRWAY_OK, fairway_describe(bob.get(), inbox.id, &bytes, &count, nullptr));
  fairway_remote_region imported = sized<fairway_remote_region>();
  EXPECT_EQ(FAIRWAY_OK, fairway_import(alice.get(), peer, bytes, count, &imported, nullptr));
  EXPECT_EQ(65536u, imported.size_bytes);
  EXPECT_EQ(FAIRWAY_OK, fairway_release(alice.get(), &imported, nullptr));
  EXPECT_NE(FAIRWAY_OK, fairway_import(alice.get(), peer, bytes, count / 2, &imported, nullptr));
  fairway_free(bytes);
}

TEST_F(CAbi, ExplainsAndMeasures) {
  const fairway_request asked = request();
  move(asked);
  fairway_explanation* why = nullptr;
  ASSERT_EQ(FAIRWAY_OK, fairway_explain_request(alice.get(), &asked, &why, nullptr));
  EXPECT_EQ(sizeof(fairway_explanation), why->struct_size);
  ASSERT_GE(why->link_count, 1u);
  EXPECT_NE(nullptr, std::strstr(why->text, why->links[0].name));
  fairway_explanation_free(why);
  ASSERT_EQ(FAIRWAY_OK, fairway_explain_peer(alice.get(), peer, &why, nullptr));
  fairway_explanation_free(why);
  fairway_metrics* metrics = fairway_metrics_get(alice.get(), 1);
  ASSERT_EQ(1u, metrics->peer_count);
  EXPECT_EQ(0u, std::string(metrics->peers[0].name).find("bob ("));
  EXPECT_EQ(1u, metrics->peers[0].transfers_ok);
  EXPECT_GE(metrics->link_count, 1u);
  fairway_metrics_free(metrics);
}

TEST_F(CAbi, TheEndIsTold) {
  fairway_peer_event event = sized<fairway_peer_event>();
  ASSERT_EQ(FAIRWAY_OK, fairway_wait_peer_event(bob.get(), 1'000'000, nullptr));
  bool down = false;
  alice.reset();
  while (!down) {
    ASSERT_EQ(FAIRWAY_OK, fairway_wait_peer_event(bob.get(), 5'000'000, nullptr));
    while (fairway_poll_peer_event(bob.get(), &event) == 1) {
      if (event.kind == FAIRWAY_PEER_DOWN) {
        EXPECT_NE(nullptr, std::strstr(event.name, "alice"));
      }
      down = down || event.kind == FAIRWAY_PEER_DOWN;
      EXPECT_EQ(event.kind == FAIRWAY_PEER_DOWN || event.kind == FAIRWAY_LINK_DOWN, event.reason != nullptr);
      fairway_peer_event_clear(&event);
    }
  }
  fairway_close(bob.get());
  fairway_error* error = nullptr;
  EXPECT_EQ(FAIRWAY_CLOSED, fairway_connect(bob.get(), "127.0.0.1:1", 0, &peer, &error));
  EXPECT_STREQ("closed", fairway_code_name(fairway_error_code(error)));
  fairway_error_free(error);
}

TEST_F(CAbi, StreamsWithoutAGpuSaySo) {
  fairway_mapping mapping = sized<fairway_mapping>();
  EXPECT_NE(FAIRWAY_OK, fairway_map_remote(alice.get(), &remote, 0, 1000, &mapping, nullptr));
  EXPECT_NE(FAIRWAY_OK, fairway_map_local(alice.get(), &draft, 0, 1000, &mapping, nullptr));
  fairway_stream_put put;
  fairway_stream_put_init(&put);
  EXPECT_NE(FAIRWAY_OK, fairway_put(alice.get(), 1, &put, nullptr, nullptr));
  put.by = 3;
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_put(alice.get(), 1, &put, nullptr, nullptr));
  fairway_stream_wait wait;
  fairway_stream_wait_init(&wait);
  EXPECT_NE(FAIRWAY_OK, fairway_wait_signal(alice.get(), &wait, nullptr, nullptr));
}

TEST_F(CAbi, CancelSaysWhoHoldsWhat) {
  fairway_request waits = request();
  waits.operation = FAIRWAY_RECEIVE;
  waits.tag = 9;
  fairway_transfer id{};
  ASSERT_EQ(FAIRWAY_OK, submit(waits, &id));
  fairway_cancelled cancelled = sized<fairway_cancelled>();
  ASSERT_EQ(FAIRWAY_OK, fairway_cancel(alice.get(), id, 1'000'000, &cancelled, nullptr));
  EXPECT_EQ(1, cancelled.fenced);
  fairway_free(cancelled.held_by);
  fairway_completion done{};
  ASSERT_EQ(FAIRWAY_OK, fairway_wait(alice.get(), id, -1, &done, nullptr));
  EXPECT_EQ(FAIRWAY_CANCELLED, done.code);
  EXPECT_EQ(FAIRWAY_CANCELLED, fairway_error_code(done.error));
  fairway_error_free(done.error);
}

}  // namespace
}  // namespace c_abi
