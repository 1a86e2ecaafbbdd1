#include <cstring>
#include <thread>

#include <dlfcn.h>

#include "process/cuda/gpu_pair.h"
#include "support/open_engine.h"

// Checksums of GPU memory and atomics on it, both executed by the engine of its owner.
namespace fairway {
namespace {

using namespace gpu_pair;

class CudaDeviceOperations : public GpuPair, public testing::WithParamInterface<bool> {  // true: staged
 protected:
  std::vector<std::string> transports() const { return GetParam() ? std::vector<std::string>{"staged", "tcp"} : kAll; }
  std::uint64_t word_at(std::uint64_t offset) {
    const Region into = on_gpu(4096);
    EXPECT_TRUE(finish(*engine_, engine_->read(peer_, Extent{{into.id, 0, 8}, {remote_.id, offset}})));
    std::uint64_t word = 0;
    std::memcpy(&word, content(into, 8).data(), 8);
    return word;
  }
};

TEST_P(CudaDeviceOperations, AChecksumSeesAWrongByteAndNothingElse) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc", transports()));
  void* const driver = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  const auto spoil =
      reinterpret_cast<void (*)()>(driver == nullptr ? nullptr : ::dlsym(driver, "fairway_standin_spoil_a_copy"));
  const Region from = on_gpu();
  gpus_->write(from.address, patterns(1, kBytes));
  RequestOptions options;
  options.checksum = true;
  const auto written = finish(*engine_, engine_->write(peer_, Extent{{from.id, 0, kBytes}, {remote_.id, 0}}, options));
  ASSERT_TRUE(written) << written.to_string();
  constexpr std::uint64_t kOdd = 700'001;  // more than a slot
  const auto got = finish(*engine_, engine_->read(peer_, Extent{{from.id, 5, kOdd}, {remote_.id, 77}}, options));
  ASSERT_TRUE(got) << got.to_string();
  if (spoil == nullptr) GTEST_SKIP() << "the real driver copies right";
  spoil();
  const auto wrong = finish(*engine_, engine_->write(peer_, Extent{{from.id, 0, 4096}, {remote_.id, 0}}, options));
  EXPECT_EQ(wrong.code(), ErrorCode::checksum_mismatch) << wrong.to_string();
}

TEST_P(CudaDeviceOperations, AtomicsOfSeveralEnginesAreAllCounted) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc", transports()));
  const Region zeros = on_gpu();
  gpus_->write(zeros.address, std::vector<std::byte>(kBytes));
  ASSERT_TRUE(write(zeros, kBytes));
  constexpr int kEach = 200;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      auto engine = open_engine(options_of("adder" + std::to_string(i), transports()));
      ASSERT_TRUE(engine);
      const auto peer = engine->connect(child_address_, kSoon);
      ASSERT_TRUE(peer);
      const auto remote = engine->lookup(*peer, "memory", kSoon);
      ASSERT_TRUE(remote);
      for (int turn = 0; turn < kEach; ++turn) {
        const Status added = finish(*engine, engine->fetch_add(*peer, {remote->id, 64}, 3));
        ASSERT_TRUE(added) << added.to_string();
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(word_at(64), 3u * 3u * kEach);
  const auto swap = engine_->compare_swap(peer_, {remote_.id, 64}, 3 * 3 * kEach, 77);
  const auto done = engine_->wait(*swap, kSoon);
  ASSERT_TRUE(done && done->status);
  EXPECT_EQ(done->old_value, 3u * 3u * kEach);
  const auto missed = engine_->wait(engine_->compare_swap(peer_, {remote_.id, 64}, 5, 78).value(), kSoon);
  ASSERT_TRUE(missed && missed->status);
  EXPECT_EQ(missed->old_value, 77u);
  EXPECT_EQ(word_at(64), 77u);
  RequestOptions options;
  options.notify.kind = NotifyKind::signal;
  options.notify.signal = {remote_.id, 64};
  options.notify.signal_value = 5;
  options.notify.signal_add = true;
  ASSERT_TRUE(finish(*engine_, engine_->write(peer_, Extent{{zeros.id, 0, 32}, {remote_.id, 0}}, options)));
  EXPECT_EQ(word_at(64), 82u);
  EXPECT_EQ(engine_->fetch_add(peer_, {remote_.id, 4}, 1).status().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(engine_->fetch_add(peer_, {remote_.id, kBytes}, 1).status().code(), ErrorCode::out_of_range);
}

INSTANTIATE_TEST_SUITE_P(Of, CudaDeviceOperations, testing::Bool(),
                         [](const auto& row) { return row.param ? "staged" : "by_links"; });

}  // namespace
}  // namespace fairway
