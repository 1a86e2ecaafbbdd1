#include "c/abi.h"
#include "process/cuda/mapping_pair.h"

// Mappings and streams through the C ABI, on a driver that stands in for CUDA's.
namespace fairway {
namespace {

using namespace gpu_pair;

class CStreams : public CudaMapping {
 protected:
  // The fixture's engine as C has it.
  class Borrowed {
   public:
    explicit Borrowed(Engine& engine) : engine_{nullptr, engine, {}} {}
    fairway_engine* get() { return &engine_; }

   private:
    fairway_engine engine_;
  };
  fairway_remote_region remote() const {
    return {sizeof(fairway_remote_region),      {remote_.id.slot, remote_.id.generation},
            {peer_.slot, peer_.generation},     remote_.size_bytes,
            static_cast<int32_t>(remote_.kind), static_cast<int32_t>(remote_.access)};
  }
};

TEST_F(CStreams, PutIntoAMappingAndUnmap) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const Region from = registered(kBytes, 0);
  gpus_->write(from.address, patterns(1, kBytes));
  const auto stream = make_stream(0);
  Borrowed engine(*engine_);
  const fairway_remote_region there = remote();
  fairway_mapping mapping{};
  mapping.struct_size = sizeof mapping;
  ASSERT_EQ(FAIRWAY_OK, fairway_map_remote(engine.get(), &there, 0, 5'000'000, &mapping, nullptr));
  EXPECT_NE(mapping.address, nullptr);
  EXPECT_EQ(mapping.size_bytes, kBytes);
  EXPECT_EQ(*mapping.ended, 0u);
  EXPECT_STRNE(mapping.path_description, "");
  fairway_free(mapping.path_description);
  fairway_stream_put put;
  fairway_stream_put_init(&put);
  put.from = from.address;
  put.length = 4096;
  put.by = FAIRWAY_PUT_COPY_ENGINE;
  put.signal_offset = kSignal;
  ASSERT_EQ(FAIRWAY_OK, fairway_put(engine.get(), mapping.id, &put, stream, nullptr));
  synchronize(stream);
  EXPECT_EQ(ask("back 4096"), "as sent");
  EXPECT_EQ(ask("word"), "1");
  put.offset = kBytes;
  EXPECT_EQ(FAIRWAY_OUT_OF_RANGE, fairway_put(engine.get(), mapping.id, &put, stream, nullptr));
  EXPECT_EQ(FAIRWAY_OK, fairway_unmap(engine.get(), mapping.id, nullptr));
  put.offset = 0;
  fairway_error* error = nullptr;
  EXPECT_EQ(FAIRWAY_NOT_FOUND, fairway_put(engine.get(), mapping.id, &put, stream, &error));
  EXPECT_STRNE(fairway_error_text(error), "");
  fairway_error_free(error);
}

TEST_F(CStreams, AStreamWaitsForATransfer) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const Region from = registered(kBytes, 0);
  gpus_->write(from.address, patterns(1, kBytes));
  const auto stream = make_stream(0);
  Borrowed engine(*engine_);
  fairway_request request;
  fairway_request_init(&request);
  request.operation = FAIRWAY_WRITE;
  request.peer = {peer_.slot, peer_.generation};
  request.extent = {{{from.id.slot, from.id.generation}, 0, kBytes / 2}, {{remote_.id.slot, remote_.id.generation}, 0}};
  fairway_transfer transfer;
  size_t taken = 0;
  ASSERT_EQ(FAIRWAY_OK, fairway_submit(engine.get(), &request, 1, &transfer, &taken, nullptr));
  ASSERT_EQ(taken, 1u);
  ASSERT_EQ(FAIRWAY_OK, fairway_wait_transfer(engine.get(), transfer, stream, nullptr));
  synchronize(stream);  // behind the transfer, though nobody has collected it
  EXPECT_EQ(ask("back " + std::to_string(kBytes / 2)), "as sent");
  fairway_completion done{};
  ASSERT_EQ(FAIRWAY_OK, fairway_wait(engine.get(), transfer, 5'000'000, &done, nullptr));
  EXPECT_EQ(done.code, FAIRWAY_OK);
  EXPECT_EQ(done.bytes, kBytes / 2);
}

}  // namespace
}  // namespace fairway
