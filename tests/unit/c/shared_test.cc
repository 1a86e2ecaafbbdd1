#include <array>
#include <cstddef>
#include <string>

#include "two_engines.h"

// What several parts of a program that share an engine use of the C ABI, deadlines, and waits for several transfers.
namespace c_abi {
namespace {

TEST_F(CAbi, SeveralAreWaitedForAndFlushed) {
  std::array<fairway_transfer, 4> ids{};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    fairway_request write = request();  // to bytes of its own
    write.extent.remote.offset = 4096 * i;
    ASSERT_EQ(FAIRWAY_OK, submit(write, &ids[i]));
  }
  EXPECT_EQ(FAIRWAY_OK, fairway_flush(alice.get(), peer, 5'000'000, nullptr));
  EXPECT_EQ(FAIRWAY_OK, fairway_drain(alice.get(), 0, nullptr));
  fairway_completion one{};
  ASSERT_EQ(FAIRWAY_OK, fairway_wait_any(alice.get(), ids.data(), 2, 0, &one, nullptr)) << "they are complete";
  EXPECT_EQ(ids[0].slot, one.id.slot);
  std::array<fairway_completion, 4> all{};
  ASSERT_EQ(FAIRWAY_OK, fairway_wait_all(alice.get(), &ids[1], 3, -1, all.data(), nullptr));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ids[i + 1].slot, all[i].id.slot);
    EXPECT_EQ(4096u, all[i].bytes);
    EXPECT_EQ(FAIRWAY_OK, all[i].code);
  }
  fairway_error* error = nullptr;
  EXPECT_EQ(FAIRWAY_NOT_FOUND, fairway_wait_all(alice.get(), ids.data(), 4, -1, all.data(), &error));
  EXPECT_NE(std::string::npos, text_of(error).find("ids[0]"));
  for (const fairway_completion& gone : all) {
    EXPECT_EQ(FAIRWAY_NOT_FOUND, gone.code);
    fairway_error_free(gone.error);
  }
  EXPECT_EQ(FAIRWAY_NOT_FOUND, fairway_wait_any(alice.get(), ids.data(), 4, -1, &one, nullptr));
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_wait_any(alice.get(), nullptr, 4, -1, &one, nullptr));
  EXPECT_EQ(FAIRWAY_NOT_FOUND, fairway_flush(alice.get(), {9999, 1}, -1, nullptr));
}

TEST_F(CAbi, AMessageIsFoundBeforeItIsReceived) {
  fairway_request send = request();
  send.operation = FAIRWAY_SEND;
  send.tag = 9;
  send.extent.local.length = 300;
  fairway_transfer id{};
  ASSERT_EQ(FAIRWAY_OK, submit(send, &id));
  fairway_peer from{};
  std::uint64_t size = 0;
  ASSERT_EQ(FAIRWAY_OK, fairway_probe(bob.get(), {}, 9, 5'000'000, &from, &size, nullptr));
  EXPECT_EQ(300u, size);
  EXPECT_EQ(FAIRWAY_OK, fairway_probe(bob.get(), from, 9, 0, &from, &size, nullptr)) << "it is still there";
  EXPECT_EQ(FAIRWAY_TIMED_OUT, fairway_probe(bob.get(), from, 8, 0, &from, &size, nullptr));
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_probe(bob.get(), from, 8, 0, nullptr, &size, nullptr));
}

TEST_F(CAbi, AReceiveOfAnyPeerSaysWhoseMessageItGot) {
  fairway_request receive;
  fairway_request_init(&receive);
  receive.operation = FAIRWAY_RECEIVE;
  receive.tag = 9;
  receive.extent.local = {inbox.id, 0, 4096};
  fairway_transfer into{}, id{};
  std::size_t taken = 0;
  ASSERT_EQ(FAIRWAY_OK, fairway_submit(bob.get(), &receive, 1, &into, &taken, nullptr));
  fairway_request send = request();
  send.operation = FAIRWAY_SEND;
  send.tag = 9;
  send.extent.local.length = 300;
  ASSERT_EQ(FAIRWAY_OK, submit(send, &id));
  fairway_completion done{};
  ASSERT_EQ(FAIRWAY_OK, fairway_wait(bob.get(), into, 5'000'000, &done, nullptr));
  EXPECT_EQ(FAIRWAY_OK, done.code) << text_of(done.error);
  EXPECT_EQ(300u, done.bytes);
  const fairway_peer from = fairway_completion_peer(&done);
  EXPECT_NE(0u, from.generation);
  EXPECT_EQ(FAIRWAY_OK, fairway_flush(bob.get(), from, 0, nullptr)) << "a peer of bob's";
  ASSERT_EQ(FAIRWAY_OK, fairway_wait(alice.get(), id, 5'000'000, &done, nullptr));
  EXPECT_EQ(0u, fairway_completion_peer(&done).generation) << "a send's";
  EXPECT_EQ(0u, fairway_completion_peer(nullptr).generation);
}

TEST_F(CAbi, AMessageMayLieInSeveralPieces) {
  const std::array<fairway_extent, 2> to{{{{inbox.id, 4096, 100}, {}}, {{inbox.id, 0, 300}, {}}}};
  fairway_request receive;
  fairway_request_init(&receive);
  receive.operation = FAIRWAY_RECEIVE;
  receive.tag = 9;
  receive.layout = FAIRWAY_EXTENTS;
  receive.extents = to.data();
  receive.extent_count = to.size();
  fairway_request send = request();
  send.operation = FAIRWAY_SEND;
  send.tag = 9;
  const std::array<fairway_extent, 3> from{
      {{{draft.id, 50, 20}, {}}, {{draft.id, 70, 80}, {}}, {{draft.id, 1000, 200}, {}}}};
  send.layout = FAIRWAY_EXTENTS;
  send.extents = from.data();
  send.extent_count = from.size();
  fairway_transfer id{};
  ASSERT_EQ(FAIRWAY_OK, submit(send, &id));
  std::uint64_t size = 0;
  ASSERT_EQ(FAIRWAY_OK, fairway_probe(bob.get(), {}, 9, 5'000'000, &receive.peer, &size, nullptr));
  std::size_t taken = 0;
  fairway_transfer into{};
  fairway_error* error = nullptr;
  ASSERT_EQ(FAIRWAY_OK, fairway_submit(bob.get(), &receive, 1, &into, &taken, &error)) << text_of(error);
  fairway_completion done{};
  ASSERT_EQ(FAIRWAY_OK, fairway_wait(bob.get(), into, 5'000'000, &done, nullptr));
  EXPECT_EQ(FAIRWAY_OK, done.code) << text_of(done.error);
  EXPECT_EQ(300u, done.bytes);
  EXPECT_TRUE(same(50, 4096, 100) && same(1000, 0, 200));
}

TEST_F(CAbi, AQueueAndASpaceAreTheirOwners) {
  fairway_queue queue{};
  ASSERT_EQ(FAIRWAY_OK, fairway_make_queue(alice.get(), 2, &queue, nullptr));
  fairway_counters space{}, named{};
  ASSERT_EQ(FAIRWAY_OK, fairway_make_counters(bob.get(), 4, -1, &space, nullptr));
  ASSERT_EQ(FAIRWAY_OK, fairway_make_counters(bob.get(), 4, 77, &named, nullptr));
  EXPECT_EQ(77u, named.first);
  EXPECT_EQ(4u, named.count);
  fairway_error* error = nullptr;
  EXPECT_EQ(FAIRWAY_ALREADY_EXISTS, fairway_make_counters(bob.get(), 1, 80, &named, &error));
  EXPECT_NE(std::string::npos, text_of(error).find("77 to 80"));
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_make_counters(bob.get(), 1, -2, &named, nullptr));

  fairway_request told = request();
  told.deliver = FAIRWAY_TO_POLL;
  told.queue = queue;
  told.user_data = &queue;
  told.notify = FAIRWAY_NOTIFY_EVENT;
  told.immediate = space.first + 3;
  fairway_transfer id{};
  ASSERT_EQ(FAIRWAY_OK, submit(told, &id));
  ASSERT_EQ(FAIRWAY_OK, fairway_wait_queue(alice.get(), queue, 5'000'000, nullptr));
  fairway_completion done{};
  EXPECT_EQ(0u, fairway_poll(alice.get(), &done, 1));
  ASSERT_EQ(1u, fairway_poll_queue(alice.get(), queue, &done, 1));
  EXPECT_EQ(&queue, done.user_data);
  ASSERT_EQ(FAIRWAY_OK, fairway_wait_counters(bob.get(), &space, 5'000'000, nullptr));
  fairway_notification note{};
  EXPECT_EQ(0u, fairway_poll_notifications(bob.get(), &note, 1));
  ASSERT_EQ(1u, fairway_poll_counters(bob.get(), &space, &note, 1));
  EXPECT_EQ(space.first + 3, note.immediate);
  EXPECT_EQ(FAIRWAY_OK, fairway_release_counters(bob.get(), &space, nullptr));
  EXPECT_EQ(FAIRWAY_NOT_FOUND, fairway_release_counters(bob.get(), &space, nullptr));
  EXPECT_EQ(FAIRWAY_OK, fairway_end_queue(alice.get(), queue, nullptr));
  EXPECT_EQ(FAIRWAY_NOT_FOUND, submit(told, &id));
}

TEST_F(CAbi, ARequestOfTheFirstVersionHasNoQueue) {
  fairway_request older = request();
  older.struct_size = offsetof(fairway_request, queue);
  older.queue = {1, 99};  // beyond its end
  EXPECT_EQ(4096u, move(older).bytes);
}

TEST_F(CAbi, ADeadlineOfNoTimeHasPassed) {
  EXPECT_EQ(FAIRWAY_NO_DEADLINE, request().deadline_us);
  for (const std::int64_t left : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN}) {
    fairway_request late = request();
    late.deadline_us = left;
    fairway_transfer id{};
    ASSERT_EQ(FAIRWAY_OK, submit(late, &id));
    fairway_completion done{};
    ASSERT_EQ(FAIRWAY_OK, fairway_wait(alice.get(), id, 5'000'000, &done, nullptr));
    EXPECT_EQ(FAIRWAY_DEADLINE_EXCEEDED, done.code);
    EXPECT_EQ(FAIRWAY_EFFECT_NOT_APPLIED, fairway_error_effect(done.error));
    fairway_error_free(done.error);
  }
}

}  // namespace
}  // namespace c_abi
