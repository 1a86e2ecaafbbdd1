#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "process/nccl/pattern.h"
#include "support/cuda/device_memory.h"

// As many channels as NCCL may have: their connections are made at once, each with memory of its own.
namespace fairway::nccl {
namespace {

using support::DeviceMemory;
constexpr int kPosted = 8;                                             // as NCCL posts ahead
constexpr std::size_t kChannelBytes = 64 * 1024, kGranule = 2u << 20;  // of virtual memory management

// One connection, one way: NCCL's buffers for it and what is on its way.
struct Channel {
  void* end = nullptr;
  std::byte* buffer = nullptr;
  void* memory = nullptr;
  void* requests[kPosted] = {};
  int begun = 0, done = 0;
};

class Channels {
 public:
  Channels(Board& board, int number, int count, bool gpu) : rank_(board, number, 2, 12), gpu_(gpu) {
    senders_.resize(static_cast<std::size_t>(count));
    receivers_.resize(static_cast<std::size_t>(count));
    if (gpu) gpus_ = std::make_unique<DeviceMemory>();
  }

  void connect() {
    std::vector<void*> listeners(receivers_.size());
    Board& board = rank_.board;
    for (std::size_t i = 0; i < listeners.size(); ++i)
      rank_.must(rank_.table->listen(board.channels[rank_.rank][i], &listeners[i]), "listen");
    rank_.barrier(0);
    std::vector<HandleBytes> theirs(board.channels[1 - rank_.rank], board.channels[1 - rank_.rank] + senders_.size());
    rank_.until("connecting", [&] {
      bool all = true;
      for (std::size_t i = 0; i < listeners.size(); ++i) {
        void*& sender = senders_[i].end;
        void*& receiver = receivers_[i].end;
        if (sender == nullptr) rank_.must(rank_.table->connect(theirs[i], &sender), "connect");
        if (receiver == nullptr) rank_.must(rank_.table->accept(listeners[i], &receiver), "accept");
        all &= sender != nullptr && receiver != nullptr;
      }
      return all;
    });
    for (void* listener : listeners) rank_.must(rank_.table->close_listener(listener), "closeListen");
    for (auto* ways : {&senders_, &receivers_})
      for (Channel& way : *ways) {
        way.buffer = allocate();
        way.memory = rank_.register_memory(way.end, way.buffer, kPosted * kChannelBytes,
                                           gpu_ ? abi::kPointerCuda : abi::kPointerHost);
      }
  }

  // Each channel `messages` of them both ways, all channels at once.
  void move(int messages) {
    const auto seed = [](int from, std::size_t channel, int message) {
      return static_cast<std::uint64_t>(from) * 1000003 + channel * 1009 + static_cast<std::uint64_t>(message);
    };
    const auto size_of = [](int message) { return message % 3 == 0 ? kChannelBytes : std::size_t{16} + 8 * message; };
    std::vector<std::byte> plain(kChannelBytes);
    rank_.until("the messages", [&] {
      bool all = true;
      for (std::size_t i = 0; i < senders_.size(); ++i) {
        Channel& out = senders_[i];
        Channel& in = receivers_[i];
        if (in.begun < messages && in.begun < in.done + kPosted) {
          void* data = in.buffer + in.begun % kPosted * kChannelBytes;
          std::size_t size = kChannelBytes;
          int tag = 0;
          void*& request = in.requests[in.begun % kPosted];
          rank_.must(rank_.table->receive(in.end, 1, &data, &size, &tag, &in.memory, &request), "irecv");
          in.begun += request != nullptr ? 1 : 0;
        }
        if (out.begun < messages && out.begun < out.done + kPosted) {
          std::byte* data = out.buffer + out.begun % kPosted * kChannelBytes;
          const std::size_t size = size_of(out.begun);
          fill(plain.data(), size, seed(rank_.rank, i, out.begun));
          write(data, std::span(plain).first(size));
          void*& request = out.requests[out.begun % kPosted];
          rank_.must(rank_.table->send(out.end, data, size, 0, out.memory, &request), "isend");
          out.begun += request != nullptr ? 1 : 0;
        }
        if (tested(out) >= 0) ++out.done;
        if (const int size = tested(in); size >= 0) {
          if (static_cast<std::size_t>(size) != size_of(in.done)) throw Failure("a size");
          read(std::span(plain).first(static_cast<std::size_t>(size)), in.buffer + in.done % kPosted * kChannelBytes);
          compare(plain.data(), static_cast<std::size_t>(size), seed(1 - rank_.rank, i, in.done++));
        }
        all &= out.done == messages && in.done == messages;
      }
      return all;
    });
  }

  void leave() {
    for (auto* ways : {&senders_, &receivers_})
      for (Channel& way : *ways) rank_.must(rank_.table->deregister(way.end, way.memory), "deregMr");
    rank_.barrier(1);
    for (Channel& way : senders_) rank_.must(rank_.table->close_sender(way.end), "closeSend");
    for (Channel& way : receivers_) rank_.must(rank_.table->close_receiver(way.end), "closeRecv");
    rank_.leave();
  }

 private:
  std::byte* allocate() {
    if (gpu_) return gpus_->map(kGranule, device(), true);
    host_.emplace_back(kPosted * kChannelBytes);
    return host_.back().data();
  }
  int device() const { return rank_.rank % gpus_->devices(); }
  void write(std::byte* to, std::span<const std::byte> bytes) {
    if (gpu_)
      gpus_->write(to, bytes, device());
    else
      std::memcpy(to, bytes.data(), bytes.size());
  }
  void read(std::span<std::byte> to, const std::byte* from) {
    if (gpu_)
      gpus_->read(to, from, device());
    else
      std::memcpy(to.data(), from, to.size());
  }
  // The size of the oldest one that is on its way, if it is done; else -1.
  int tested(Channel& way) {
    if (way.done == way.begun) return -1;
    int done = 0, sizes[abi::kMostReceives] = {};
    rank_.must(rank_.table->test(way.requests[way.done % kPosted], &done, sizes), "test");
    return done != 0 ? sizes[0] : -1;
  }

  Rank rank_;
  const bool gpu_;
  std::vector<Channel> senders_, receivers_;
  std::vector<std::vector<std::byte>> host_;
  std::unique_ptr<DeviceMemory> gpus_;
};

void channels(Board& board, int number, int count, bool gpu) {
  Channels all(board, number, count, gpu);
  all.connect();
  all.move(12);
  all.leave();
}

class NcclChannels : public testing::TestWithParam<const char*> {
 protected:
  NcclChannels() {
    ::setenv("FAIRWAY_TRANSPORTS", GetParam(), 1);
    ::setenv("FAIRWAY_GPU_MEMORY", "off", 1);
  }
};

TEST_P(NcclChannels, AreAsManyAsNcclAsksFor) {
  Ranks ranks(2, [](Board& board, int rank) { channels(board, rank, kMostChannels, false); });
  EXPECT_EQ(ranks.outcomes(), "");
}

INSTANTIATE_TEST_SUITE_P(Over, NcclChannels, testing::Values("shm", "tcp"),
                         [](const auto& row) { return std::string(row.param); });

TEST(NcclChannelsOfGpus, AreAsManyAsNcclAsksFor) {
  Ranks ranks(2, [](Board& board, int rank) {
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
    ::unsetenv("FAIRWAY_TRANSPORTS");
    ::setenv("FAIRWAY_GPU_MEMORY", "on", 1);
    channels(board, rank, kMostChannels, true);
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

}  // namespace
}  // namespace fairway::nccl
