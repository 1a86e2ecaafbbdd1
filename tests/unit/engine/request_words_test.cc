// Requests and options as a program writes them: by the names of their members, without a warning, and notifications by
// a word each.
#include <array>

#include <gtest/gtest.h>

#include "fairway/fairway.h"

namespace fairway {
namespace {

TEST(RequestWords, NotificationsHaveNames) {
  const std::array<std::byte, 2> text{};
  const RequestOptions event{.notify = notify_event(7, text), .checksum = true};
  EXPECT_EQ(event.notify.kind, NotifyKind::event);
  EXPECT_EQ(event.notify.immediate, 7u);
  EXPECT_EQ(event.notify.message.data(), text.data());
  EXPECT_EQ(notify_counter(9).kind, NotifyKind::counter);
  EXPECT_EQ(notify_counter(9).immediate, 9u);
  const RemoteAddress word{.region = {3, 4}, .offset = 8};
  const Notify set = set_signal(word, 5), added = add_to_signal(word, 5);
  EXPECT_EQ(set.kind, NotifyKind::signal);
  EXPECT_EQ(set.signal.offset, 8u);
  EXPECT_EQ(set.signal_value, 5u);
  EXPECT_FALSE(set.signal_add);
  EXPECT_TRUE(added.signal_add);
}

TEST(RequestWords, EachCanBeWrittenByMembers) {
  const Request read{.operation = Operation::read, .layout = Extent{.local = {.length = 8}}};
  const Layout strided = Strided{.first = {.local = {.length = 4}}, .local_stride = 8, .count = 3};
  const Layout paged = Paged{.page_bytes = 4096};
  const EngineOptions options{.name = "a", .rdma = {.queue_pairs = 2}, .loopback = nullptr};
  const StreamWait wait{.value = 2};
  EXPECT_EQ(std::get<Extent>(read.layout).local.length, 8u);
  EXPECT_EQ(std::get<Strided>(strided).count, 3u);
  EXPECT_EQ(std::get<Paged>(paged).page_bytes, 4096u);
  EXPECT_EQ(options.rdma.queue_pairs, 2u);
  EXPECT_EQ(wait.timeout.count(), 1'000'000);
}

}  // namespace
}  // namespace fairway
