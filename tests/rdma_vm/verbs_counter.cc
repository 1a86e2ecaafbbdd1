#include <atomic>
#include <cstdio>
#include <cstring>

#include <dlfcn.h>
#include <infiniband/verbs.h>

// Preloaded into a program that uses libibverbs, of ours or not: counts what it asks of its NICs, and says so at its
// end. It takes the place of ibv_open_device, also for who looks that up with dlvsym, and of the functions in the
// context.
namespace {

std::atomic<std::uint64_t> doorbells, requests, receive_doorbells, receives, completions, polls;

struct Real {
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
  int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);
  int (*poll)(ibv_cq*, int, ibv_wc*);
} real;  // of one provider: a program uses devices of one kind

int post_send(ibv_qp* pair, ibv_send_wr* first, ibv_send_wr** bad) {
  ++doorbells;
  for (const ibv_send_wr* each = first; each != nullptr; each = each->next) ++requests;
  return real.post_send(pair, first, bad);
}

int post_recv(ibv_qp* pair, ibv_recv_wr* first, ibv_recv_wr** bad) {
  ++receive_doorbells;
  for (const ibv_recv_wr* each = first; each != nullptr; each = each->next) ++receives;
  return real.post_recv(pair, first, bad);
}

int poll(ibv_cq* queue, int most, ibv_wc* into) {
  const int count = real.poll(queue, most, into);
  ++polls;
  if (count > 0) completions += static_cast<std::uint64_t>(count);
  return count;
}

struct Teller {
  ~Teller() {
    if (doorbells != 0)
      std::fprintf(
          stderr, "\ncounted %lu doorbells %lu requests %lu completions %lu receive_doorbells %lu receives %lu polls\n",
          doorbells.load(), requests.load(), completions.load(), receive_doorbells.load(), receives.load(),
          polls.load());
  }
} teller;

}  // namespace

extern "C" {

__attribute__((visibility("default"))) ibv_context* ibv_open_device(ibv_device* device) {
  static const auto open = reinterpret_cast<ibv_context* (*)(ibv_device*)>(
      ::dlsym(::dlopen("libibverbs.so.1", RTLD_NOW), "ibv_open_device"));
  ibv_context* const context = open(device);
  if (context == nullptr) return nullptr;
  real = {context->ops.post_send, context->ops.post_recv, context->ops.poll_cq};
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->ops.poll_cq = poll;
  return context;
}

__attribute__((visibility("default"))) void* dlvsym(void* handle, const char* symbol, const char* version) noexcept {
  using Look = void* (*)(void*, const char*, const char*);
  static const auto look = reinterpret_cast<Look>(::dlsym(RTLD_NEXT, "dlvsym"));
  if (std::strcmp(symbol, "ibv_open_device") == 0) return reinterpret_cast<void*>(&ibv_open_device);
  return look(handle, symbol, version);
}
}
