#include <chrono>
#include <cstring>

#include "conformance/own_side.h"
#include "conformance/world.h"
#include "engine/open.h"
#include "examples/mailbox/mailbox.h"
#include "sys/system_runtime.h"
#include "transport/registry.h"

// The transport of examples/mailbox, which is none of the library's, as any other.
namespace fairway::conformance {
namespace {

constexpr std::uint64_t kMailboxBytes = 100'000;

using Offers = std::shared_ptr<transport::Offers<mailbox::Cable>>;

transport::OtherTransport mailboxes(const Offers& offers) {
  return {"mailbox", [offers](transport::RegionTable& regions, Runtime& runtime) {
            return Result<std::unique_ptr<Transport>>(std::make_unique<mailbox::Mailbox>(offers, regions, runtime));
          }};
}

class MailboxWorld final : public World {
 public:
  MailboxWorld() {
    const auto open = mailboxes(offers_).open;
    a_ = std::make_unique<OwnSide>(runtime_, open);
    b_ = std::make_unique<OwnSide>(runtime_, open);
    a_->start();
    b_->start();
  }
  ~MailboxWorld() override {
    b_->carry_no_more();
    a_.reset();
    b_.reset();
  }
  std::size_t links() const override { return 1; }
  bool break_link(std::uint64_t name) override {
    const auto cable = offers_->find_if([name](const mailbox::Cable& each) { return each.link_name == name; });
    if (cable == nullptr) return false;
    const std::lock_guard lock(cable->mutex);
    cable->cut = true;
    for (const mailbox::Cable::End* end : {&cable->acceptor, &cable->initiator})
      if (end->reader != nullptr) end->reader->wake();
    return true;
  }

 private:
  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  Offers offers_ = std::make_shared<transport::Offers<mailbox::Cable>>();
};

class OtherTransports : public testing::Test {
 protected:
  Result<Engine> open(std::vector<std::string> names) {
    EngineOptions options;
    options.transports = std::move(names);
    return EngineAccess::open(options, runtime_, [&](transport::RegionTable& regions, Runtime& runtime) {
      transport::RegistryOptions with;
      with.names = options.transports;
      with.others = {mailboxes(offers_), broken_};
      return transport::open_transports(with, regions, runtime);
    });
  }
  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  Offers offers_ = std::make_shared<transport::Offers<mailbox::Cable>>();
  const transport::OtherTransport broken_{
      "broken", [](transport::RegionTable&, Runtime&) {
        return Result<std::unique_ptr<Transport>>(Status(ErrorCode::unsupported, "it has lost its device"));
      }};
};

TEST_F(OtherTransports, CarryWhatEnginesMove) {
  auto near = open({"mailbox"}), far = open({"mailbox"});
  ASSERT_TRUE(near && far) << near.status().to_string();
  const auto from = near->allocate(kMailboxBytes, Access::all), to = far->allocate(kMailboxBytes, Access::all);
  ASSERT_TRUE(from && to && far->publish("memory", *to));
  const auto peer = near->connect(far->address(), std::chrono::seconds(10));
  ASSERT_TRUE(peer) << peer.status().to_string();
  const auto remote = near->lookup(*peer, "memory");
  ASSERT_TRUE(remote) << remote.status().to_string();
  for (std::uint64_t i = 0; i < kMailboxBytes; ++i) from->address[i] = static_cast<std::byte>(i * 7 + i / 251);
  const auto id = near->write(*peer, Extent{{from->id, 0, kMailboxBytes}, {remote->id, 0}});
  ASSERT_TRUE(id) << id.status().to_string();
  const auto done = near->wait(*id, std::chrono::seconds(10));
  ASSERT_TRUE(done && done->status) << (done ? done->status : done.status()).to_string();
  EXPECT_EQ(std::memcmp(from->address, to->address, kMailboxBytes), 0);
  ASSERT_EQ(near->metrics().links.size(), 1U);
  EXPECT_EQ(near->metrics().links.front().name.find("mailbox"), 0U) << near->metrics().links.front().name;
}

TEST_F(OtherTransports, SayWhyTheyDoNotWork) {
  const auto none = open({"mailbox", "broken"});
  ASSERT_FALSE(none);
  EXPECT_NE(none.status().message().find("it has lost its device"), std::string::npos) << none.status().to_string();
}

TEST_F(OtherTransports, AreNamedAmongThoseThatThereAre) {
  EXPECT_TRUE(transport::check_names({"mailbox", "tcp"}, {mailboxes(offers_)}));
  const Status unknown = transport::check_names({"mailbag"}, {mailboxes(offers_)});
  EXPECT_NE(unknown.message().find("tcp, mailbox"), std::string::npos) << unknown.message();
}

}  // namespace

std::vector<Kind> mailbox_kinds() {
  return {{"mailbox", 1, [](std::uint64_t) { return std::make_unique<MailboxWorld>(); }}};
}

}  // namespace fairway::conformance
