#pragma once

#include "device_flags.cuh"

// What a put costs the signals of other streams, and what a signal behind a copy costs.
namespace device {

// One thread sets a flag at the other GPU and waits for its answer until `over` says so; `took` gets ns for each round.
__global__ void flags_beside(bool first, dev::Word* there, const dev::Word* here, const volatile unsigned* over,
                             unsigned most, float* took, unsigned* rounds) {
  unsigned round = 0;
  for (; round < most && (!first || *over == 0); ++round) {
    const std::uint64_t begin = dev::now();
    const dev::Word value = round + 1;
    if (first) {
      dev::signal_set<dev::Thread>(there, value);
      if (!dev::signal_wait(here, value, begin + 20'000'000'000)) break;
      took[round] = static_cast<float>(dev::now() - begin);
    } else {
      if (!dev::signal_wait(here, value, begin + 20'000'000'000)) break;
      const bool last = dev::signal_read(here) >= most + 1;  // rank 0 has said so
      dev::signal_set<dev::Thread>(there, value);
      if (last) break;
    }
  }
  if (first) dev::signal_set<dev::Thread>(there, most + 1);  // ends the other one
  *rounds = round;
}

// Signals between two kernels while a stream of rank 0 puts `--to` bytes again and again, in each shape: half of a
// round trip, and the rate of the puts.
inline void measure_beside(Run& run) {
  Side& side = run.side;
  constexpr unsigned kMost = 200'000, kPuts = 12;
  cudaStream_t beside;
  CUDA_CHECK(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
  unsigned *over, *rounds;
  float* took;
  CUDA_CHECK(cudaHostAlloc(&over, sizeof *over, cudaHostAllocPortable | cudaHostAllocMapped));
  CUDA_CHECK(cudaHostAlloc(&rounds, sizeof *rounds, cudaHostAllocPortable | cudaHostAllocMapped));
  CUDA_CHECK(cudaMalloc(&took, kMost * sizeof *took));
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  if (side.rank == 0)
    std::printf("\nsignal_set and signal_wait between kernels beside stream_put of %s by rank 0\n  %-22s %9s %9s %9s\n",
                text_of(run.options.to).c_str(), "put", "p50 us", "p99 us", "GB/s");
  const auto figure = [&](const char* who, bool puts, fairway::PutBy by, std::uint32_t blocks) {
    run.prepare(run.options.to);
    *over = 0;
    flags_beside<<<1, 1, 0, beside>>>(side.rank == 0, side.word_there(4), side.word(4), over, kMost, took, rounds);
    CUDA_CHECK(cudaGetLastError());
    float ms = 0;
    if (side.rank == 0 && puts) {
      fairway::StreamPut put;
      put.from = side.source;
      put.length = run.options.to;
      put.by = by;
      put.blocks = blocks;
      CUDA_CHECK(cudaEventRecord(begin, side.stream));
      for (unsigned i = 0; i < kPuts; ++i) FAIRWAY_CHECK(side.engine->stream_put(side.there.id, put, side.stream));
      CUDA_CHECK(cudaEventRecord(end, side.stream));
      CUDA_CHECK(cudaStreamSynchronize(side.stream));
      CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    } else if (side.rank == 0) {
      ::usleep(20'000);
    }
    *static_cast<volatile unsigned*>(over) = 1;
    CUDA_CHECK(cudaStreamSynchronize(beside));
    side.meet();  // nothing is on its way to a word any more
    if (puts) run.verify("a put beside signals", run.options.to, 1);
    if (side.rank != 0) return;
    std::vector<float> all(*rounds);
    run.sound &= !all.empty();
    CUDA_CHECK(cudaMemcpy(all.data(), took, all.size() * sizeof(float), cudaMemcpyDeviceToHost));
    std::sort(all.begin(), all.end());
    const auto us = [&](double part) { return all[static_cast<std::size_t>(part * (all.size() - 1))] / 2e3; };
    const double rate = ms == 0 ? 0 : static_cast<double>(run.options.to) * kPuts / ms / 1e6;
    std::printf("  %-22s %9.2f %9.2f %9.1f\n", who, us(0.5), us(0.99), rate);
    run.say("signal beside a put", run.options.to, who, us(0.5));
  };
  figure("none", false, fairway::PutBy::automatic, 0);
  figure("kernel, default", true, fairway::PutBy::kernel, 0);
  for (const std::uint32_t blocks : {4, 8, 12, 16, 32, 64})
    figure(("kernel, " + std::to_string(blocks) + " blocks").c_str(), true, fairway::PutBy::kernel, blocks);
  figure("copy engine", true, fairway::PutBy::copy_engine, 0);
  CUDA_CHECK(cudaFree(took));
  CUDA_CHECK(cudaStreamDestroy(beside));
}

// Ping-pong of copies in one graph, each with a signal that is set: by a kernel behind the copy, or by the stream
// itself.
inline void measure_signal_behind_copies(Run& run) {
  Side& side = run.side;
  if (side.rank == 0)
    std::printf("\ncopy engine and a set signal in a graph (one way, us)\n  %-8s %9s %9s\n", "size", "kernel",
                "stream");
  for (const std::size_t bytes :
       {std::size_t{4} << 10, std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{16} << 20}) {
    const unsigned turns = bytes <= (1u << 20) ? 50 : 10;
    double us[2];
    for (const bool by_stream : {false, true}) {
      run.prepare(bytes);
      const cudaGraphExec_t graph = pair::capture(side.stream, [&] {
        for (unsigned value = 1; value <= turns; ++value)
          for (int turn = 0; turn < 2; ++turn) {
            if (turn == side.rank) {
              fairway::StreamPut put;
              put.from = side.source;
              put.length = bytes;
              put.by = fairway::PutBy::copy_engine;
              put.signal_offset = side.offset_of_word(0);
              put.signal_value = value;
              put.signal_add = false;
              put.signal_by_stream = by_stream;
              FAIRWAY_CHECK(side.engine->stream_put(side.there.id, put, side.stream));
            } else {
              fairway::StreamWait wait;
              wait.word = side.word(0);
              wait.value = value;
              wait.timeout = std::chrono::seconds(20);
              wait.outcome = reinterpret_cast<std::uint32_t*>(side.word(2));
              FAIRWAY_CHECK(side.engine->stream_wait_signal(wait, side.stream));
            }
          }
      });
      cudaEvent_t begin, end;
      CUDA_CHECK(cudaEventCreate(&begin));
      CUDA_CHECK(cudaEventCreate(&end));
      std::vector<double> all;
      for (int i = -2; i < 15; ++i) {
        side.clear_words();
        float ms = 0;
        CUDA_CHECK(cudaEventRecord(begin, side.stream));
        CUDA_CHECK(cudaGraphLaunch(graph, side.stream));
        CUDA_CHECK(cudaEventRecord(end, side.stream));
        CUDA_CHECK(cudaStreamSynchronize(side.stream));
        CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 0) all.push_back(ms * 1e3 / (2 * turns));
        side.meet();
      }
      us[by_stream ? 1 : 0] = median(all);
      run.see_outcome();
      run.verify("a put with a set signal", bytes);
      CUDA_CHECK(cudaGraphExecDestroy(graph));
      run.say("copy and set signal in a graph", bytes, by_stream ? "by the stream" : "by a kernel",
              us[by_stream ? 1 : 0]);
    }
    if (side.rank == 0) std::printf("  %-8s %9.2f %9.2f\n", text_of(bytes).c_str(), us[0], us[1]);
  }
}

}  // namespace device
