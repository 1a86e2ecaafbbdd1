// The cost of one write, and of one request of a batch, for a C++ caller between two engines of this process. Prints
// "one 1.234 batch 0.123", in microseconds. bench/python_cost.py runs it beside the same in Python. Usage: write_cost
// [transport]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <vector>

#include "fairway/fairway.h"

namespace {

constexpr std::size_t kBytes = 4096, kBatch = 1000, kSmall = 64;

double microseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - since).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  fairway::EngineOptions options;
  if (argc > 1)
    options.transports = {argv[1]};
  else
    options.loopback = fairway::make_loopback();
  auto one = fairway::Engine::open(options);
  auto two = fairway::Engine::open(options);
  if (!one || !two) return 1;
  auto inbox = two->allocate(kBatch * kSmall + kBytes, fairway::Access::write);
  auto draft = one->allocate(kBatch * kSmall + kBytes, fairway::Access::none);
  if (!inbox || !draft || !two->publish("inbox", *inbox)) return 1;
  auto peer = one->connect(two->address());
  if (!peer) return std::puts(peer.status().to_string().c_str()), 1;
  auto remote = one->lookup(*peer, "inbox");
  if (!remote) return 1;

  const fairway::Extent page{{draft->id, 0, kBytes}, {remote->id, 0}};
  std::vector<double> singles, batches;
  for (int i = 0; i < 5000; ++i) {
    const auto began = std::chrono::steady_clock::now();
    auto id = one->write(*peer, page);
    if (!id || !one->wait(*id)) return 1;
    singles.push_back(microseconds(began));
  }
  std::vector<fairway::Request> requests(kBatch);
  std::vector<fairway::TransferId> ids(kBatch);
  for (std::size_t i = 0; i < kBatch; ++i) {
    requests[i].peer = *peer;
    requests[i].layout = fairway::Extent{{draft->id, i * kSmall, kSmall}, {remote->id, i * kSmall}};
  }
  for (int i = 0; i < 200; ++i) {
    const auto began = std::chrono::steady_clock::now();
    if (one->submit(requests, ids).taken != kBatch) return 1;
    for (const fairway::TransferId id : ids)
      if (!one->wait(id)) return 1;
    batches.push_back(microseconds(began) / kBatch);
  }
  std::printf("one %.3f batch %.3f\n", median(singles), median(batches));
}
