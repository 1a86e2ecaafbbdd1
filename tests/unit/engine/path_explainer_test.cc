#include "engine/path_explainer.h"

#include "transferring.h"

namespace fairway::engine {
namespace {

struct ExplainedPaths : TransferringByTwo {
  // By the links' names.
  std::map<std::string, ExplainedLink> plan(const Request& request) {
    out = {};
    method = explainer.plan(out, request);
    std::map<std::string, ExplainedLink> lines;
    for (const ExplainedLink& link : out.links) lines[link.name] = link;
    return lines;
  }
  PathExplainer explainer{peer, links, routes, rates, staging.pool, client};
  Explanation out;
  Method method = Method::none;
};

TEST_F(ExplainedPaths, SayWhichLinksAreTakenAndWhatTheOthersLack) {
  auto lines = plan(write(64));
  EXPECT_EQ(method, Method::native);
  EXPECT_TRUE(lines["wire/port/0"].taken);
  EXPECT_EQ(lines["wire/port/0"].share, 1);
  EXPECT_EQ(lines["cable"].reason, "not connected yet");
  raise(1);
  lines = plan(write(64));
  EXPECT_FALSE(lines["cable/port/1"].taken);
  EXPECT_EQ(lines["cable/port/1"].reason, "slower");
  links.close(0, {ErrorCode::link_failed, "it broke"});
  lines = plan(write(64));
  EXPECT_TRUE(lines["cable/port/1"].taken);
  EXPECT_NE(lines["wire/port/0"].reason.find("it broke"), std::string::npos) << lines["wire/port/0"].reason;
}

TEST_F(ExplainedPaths, SayThatATransportRefusedAMemoryAndWhy) {
  raise(1);
  Registration registration = locals.register_with_all({}, {});
  registration.without = 1;
  registration.refused.emplace_back(0, Status(ErrorCode::resource_exhausted, "no pages left to pin"));
  locals.add(local, std::move(registration), {}, {});
  const auto lines = plan(write(64));
  EXPECT_TRUE(lines.at("cable/port/1").taken);
  EXPECT_EQ(lines.at("wire/port/0").reason.find("it refused this memory: "), 0u) << lines.at("wire/port/0").reason;
}

TEST_F(ExplainedPaths, SayWhatMessagesEmulate) {
  wire().port().capabilities.operations = static_cast<transport::Bits>(transport::Op::message);
  wire().port().capabilities.max_message_bytes = kSmallestMessage;
  const auto lines = plan(write(64));
  EXPECT_EQ(method, Method::by_messages);
  EXPECT_EQ(lines.at("wire/port/0").reason, "emulated by messages, with one copy on each side");
}

TEST_F(ExplainedPaths, SayWhatATransportSaysOfBothMemories) {
  (void)plan(write(64));
  EXPECT_EQ(out.notes, std::vector<std::string>{"wire: through the wire"});
}

TEST_F(ExplainedPaths, OfATransferThatHasEndedSayWhatItUsed) {
  raise(1);
  explainer.links(out, nullptr, 2, {});
  ASSERT_EQ(out.links.size(), 2u);
  EXPECT_FALSE(out.links[0].taken);
  EXPECT_TRUE(out.links[0].reason.empty());
  EXPECT_TRUE(out.links[1].taken);
}

TEST_F(ExplainedPaths, SayWhichTransportsThePeerLacks) {
  links.refused("nic: the peer does not have it");
  const auto lines = plan(write(64));
  EXPECT_EQ(lines.at("nic").reason, "the peer does not have it");
}

}  // namespace
}  // namespace fairway::engine
