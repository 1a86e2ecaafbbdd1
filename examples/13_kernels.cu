// A kernel that writes into a peer's memory and signals, and one that waits there: no host in between. Then the same by
// a CUDA graph, without a kernel of one's own. Needs one GPU. docs/tutorial/13-kernels.md explains it.
#include <cuda_runtime.h>

#include "fairway/device.cuh"

#include "need.h"

namespace dev = fairway::device;

constexpr std::uint64_t kBytes = 65536, kSignal = kBytes;  // the signal lies behind the bytes

__global__ void fill_and_put(unsigned char* to, unsigned char* from, dev::Word* signal) {
  for (std::uint64_t i = threadIdx.x; i < kBytes; i += blockDim.x) from[i] = static_cast<unsigned char>(i % 251);
  __syncthreads();
  dev::put<dev::Block>(to, from, kBytes);
  dev::signal_set<dev::Block>(signal, 1);
}

__global__ void wait_and_count(const unsigned char* box, const dev::Word* signal, unsigned* right) {
  if (!dev::signal_wait_block(signal, 1, dev::now() + 5'000'000'000)) return;  // five seconds of the GPU's clock
  for (std::uint64_t i = threadIdx.x; i < kBytes; i += blockDim.x)
    if (box[i] == i % 251) atomicAdd(right, 1);
}

void good(cudaError_t error) {
  if (error != cudaSuccess) std::fprintf(stderr, "%s\n", cudaGetErrorString(error)), std::quick_exit(1);
}

int main(int argc, char** argv) {
  arguments(argc, argv, 0, "");
  unsigned char *source = nullptr, *box = nullptr;
  unsigned *right = nullptr, *outcome = nullptr, counted = 0;
  dev::Word* count = nullptr;
  cudaStream_t putting, waiting;
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) return std::puts("there is no GPU"), 77;
  good(cudaMalloc(&source, kBytes)), good(cudaMalloc(&box, kBytes + 8)), good(cudaMemset(box, 0, kBytes + 8));
  good(cudaMalloc(&right, 4)), good(cudaMemset(right, 0, 4)), good(cudaMalloc(&outcome, 4)),
      good(cudaMalloc(&count, 8));
  good(cudaStreamCreateWithFlags(&putting, cudaStreamNonBlocking));
  good(cudaStreamCreateWithFlags(&waiting, cudaStreamNonBlocking));
  const dev::Word one = 1;  // the signal stands at 1 when the graph begins
  good(cudaMemcpy(count, &one, 8, cudaMemcpyHostToDevice));

  // Two engines, here of one process. Between processes only the two halves are apart.
  fairway::Engine here = need(fairway::Engine::open({})), there = need(fairway::Engine::open({}));
  need(there.publish("box", need(there.register_memory(box, kBytes + 8, fairway::Access::all))));
  const fairway::RemoteRegion remote = need(here.lookup(need(here.connect(there.address())), "box"));
  const fairway::Mapping mapping = need(here.map(remote, 0));
  std::printf("kernels of GPU %d reach it %s\n", mapping.gpu, mapping.path_description.c_str());
  auto* address = reinterpret_cast<unsigned char*>(mapping.address);

  cudaFuncAttributes loaded;  // asked for, so that it is loaded now: later that would wait for the kernel that waits
  good(cudaFuncGetAttributes(&loaded, fill_and_put));
  wait_and_count<<<1, 256, 0, waiting>>>(box, reinterpret_cast<dev::Word*>(box + kSignal), right);
  fill_and_put<<<1, 256, 0, putting>>>(address, source, reinterpret_cast<dev::Word*>(address + kSignal));
  good(cudaStreamSynchronize(waiting));
  good(cudaMemcpy(&counted, right, 4, cudaMemcpyDeviceToHost));
  std::printf("the waiting kernel saw %u of %llu bytes\n", counted, static_cast<unsigned long long>(kBytes));

  // A graph with a put and the wait for it; each launch counts one further.
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  good(cudaStreamBeginCapture(putting, cudaStreamCaptureModeThreadLocal));
  need(here.stream_put(mapping.id, {.from = source, .length = kBytes, .signal_offset = kSignal}, putting));
  need(there.stream_wait_signal(
      {.word = reinterpret_cast<dev::Word*>(box + kSignal), .count = count, .outcome = outcome}, putting));
  good(cudaStreamEndCapture(putting, &graph)), good(cudaGraphInstantiate(&ready, graph, 0));
  for (int i = 0; i < 100; ++i) good(cudaGraphLaunch(ready, putting));
  good(cudaStreamSynchronize(putting));
  dev::Word signal = 0;
  unsigned failed = 0;
  good(cudaMemcpy(&signal, box + kSignal, 8, cudaMemcpyDeviceToHost));
  good(cudaMemcpy(&failed, outcome, 4, cudaMemcpyDeviceToHost));
  std::printf("100 launches: the signal is at %llu, the last wait ended with %u\n",
              static_cast<unsigned long long>(signal), failed);
  need(here.unmap(mapping.id));
  return counted == kBytes && signal == 101 && failed == 0 ? 0 : 1;
}
