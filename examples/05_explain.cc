// Which way bytes would take, how far they are, and which way they took: two engines that may use what they find, and
// two that may use TCP alone. docs/tutorial/05-explain-and-predict.md explains it.
#include <cstring>

#include "need.h"

namespace {

constexpr std::uint64_t kSize = std::uint64_t{64} << 20;

void move(const fairway::EngineOptions& options) {
  fairway::Engine here = need(fairway::Engine::open(options)), there = need(fairway::Engine::open(options));
  const fairway::Region inbox = need(there.allocate(kSize, fairway::Access::write));
  const fairway::Region draft = need(here.allocate(kSize, fairway::Access::none));
  need(there.publish("inbox", inbox));
  std::memset(draft.address, 1, kSize);
  const fairway::PeerId peer = need(here.connect(there.address()));
  const fairway::RemoteRegion remote = need(here.lookup(peer, "inbox"));

  fairway::Request request;
  request.peer = peer;
  request.layout = fairway::Extent{.local = {draft.id, 0, kSize}, .remote = {remote.id, 0}};
  for (const char* turn : {"The first time:", "Again:"}) {
    std::printf("%s\n", turn);
    std::printf("%s", need(here.explain(request)).text().c_str());  // nothing has moved yet

    fairway::TransferId id;
    need(here.submit({&request, 1}, {&id, 1}).status);
    auto done = here.wait(id, std::chrono::milliseconds(5));
    for (; !done && done.status().code() == fairway::ErrorCode::timed_out;
         done = here.wait(id, std::chrono::milliseconds(5)))
      std::printf("  ... %llu bytes are there\n", static_cast<unsigned long long>(need(here.explain(id)).bytes_done));
    need(need(std::move(done)).status);
    std::printf("%s\n", need(here.explain(id)).text().c_str());  // with what it reached
  }
}

}  // namespace

int main(int argc, char** argv) {
  arguments(argc, argv, 0, "");
  move({});
  fairway::EngineOptions tcp;
  tcp.transports = {"tcp"};
  move(tcp);
  return 0;
}
