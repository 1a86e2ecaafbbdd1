#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "nccl_net/nccl_settings.h"
#include "nccl_net/network.h"
#include "nccl_net/tables.h"

// The functions that NCCL calls. They only convert: pointers to objects, statuses to NCCL's codes. No exception leaves.
namespace fairway::nccl {
namespace {

using abi::Code;

// State of the process: NCCL loads one plugin per process and, before v11, passes no context. Never destroyed, because
// NCCL may exit without finalize while threads are still in here.
struct Process {
  std::mutex mutex;  // guards creation and destruction of network
  Log log;
  std::unique_ptr<Network> network;
  std::vector<std::vector<int>> fused;  // of the network before, whose numbers NCCL may still have
  std::size_t contexts = 0;
  bool without_context = false;  // v8 to v10 have no finalize
};
Process& process() {
  static Process& only = *new Process;
  return only;
}
Network& network() {
  return *process().network;
}

template <class Call>
Code guarded(const char* what, Call call) {
  try {
    return call();
  } catch (const std::exception& error) {
    process().log.warn(std::string(what) + ": " + error.what());
    return abi::kSystemError;
  }
}

Code failed(const char* what, const Status& status) {
  process().log.warn(std::string(what) + ": " + status.to_string());
  return code_of(status);
}

Code open(abi::Logger logger, bool with_context) {
  return guarded("init", [&] {
    Process& all = process();
    const std::lock_guard lock(all.mutex);
    const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
    all.log.use(logger, logs_information(environment));
    if (all.network == nullptr) {
      auto opened = Network::open(environment, all.log, all.fused);
      if (!opened) return failed("init", opened.status());
      all.network = std::move(*opened);
    }
    if (with_context)
      ++all.contexts;
    else
      all.without_context = true;
    return abi::kSuccess;
  });
}

int context_mark;  // its address is the context that NCCL gets; a communicator's own state is in its connections

// NCCL calls this after a failed init, too.
Code finalize(void* context) {
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  if (context != &context_mark || all.contexts == 0) return abi::kSuccess;
  if (--all.contexts != 0 || all.without_context) return abi::kSuccess;
  all.fused = all.network->fused();
  all.network.reset();
  return abi::kSuccess;
}

Code devices(int* count) {
  *count = network().devices();
  return abi::kSuccess;
}

// Properties of all versions.
template <class Properties>
Code common(int number, Properties& to) {
  const auto found = network().device(number);
  if (!found) return failed("getProperties", found.status());
  const Device& device = **found;
  to = {};
  to.name = const_cast<char*>(device.name.c_str());
  to.pci_path = device.pci_path.empty() ? nullptr : const_cast<char*>(device.pci_path.c_str());
  to.guid = device.guid;
  to.pointers =
      abi::kPointerHost | (device.gpu_memory ? abi::kPointerCuda : 0) | (device.by_nics() ? abi::kPointerDmaBuf : 0);
  to.speed = device.speed_mbps;
  to.port = device.port;
  to.latency = device.latency_us;
  to.most_connections = 65536;
  to.most_receives = abi::kMostReceives;
  to.device_type = abi::kDeviceHost;
  to.device_version = abi::kDeviceInvalidVersion;
  if constexpr (!std::is_same_v<Properties, abi::PropertiesV8>) {
    for (const int part : device.parts)
      if (to.parts.count < static_cast<int>(std::size(to.parts.devices))) to.parts.devices[to.parts.count++] = part;
    to.most_p2p_bytes = abi::kMostBytes;
    to.most_collective_bytes = abi::kMostBytes;
  }
  if constexpr (requires { to.most_requests_in_one; }) to.most_requests_in_one = 1;
  if constexpr (requires { to.rail; }) {
    const bool rails = !device.settings.rails.empty() && device.parts.size() == 1;
    to.rail = static_cast<std::int16_t>(rails ? device.parts.front() : abi::kUndefined);
    to.plane = abi::kUndefined;
  }
  return abi::kSuccess;
}
template <class Properties>
Code properties(int number, Properties* to) {
  return guarded("getProperties", [&] { return common(number, *to); });
}

template <int Most>
Code make_virtual(int* number, abi::VirtualDevice<Most>* parts) {
  return guarded("makeVDevice", [&] {
    if (parts->count < 1 || parts->count > Most) return abi::kInvalidArgument;
    const auto made = network().fuse(parts->devices, parts->count);
    if (!made) return failed("makeVDevice", made.status());
    *number = *made;
    return abi::kSuccess;
  });
}

// ---- connections; NCCL's pointers are Listener* and Connection*, owned by their endpoint's table ----

Code listen(int device, void* handle, void** listener) {
  return guarded("listen", [&] {
    Handle made;
    const auto opened = network().listen(device, made);
    if (!opened) return failed("listen", opened.status());
    std::memset(handle, 0, abi::kHandleBytes);
    std::memcpy(handle, &made, sizeof made);
    *listener = opened->get();
    return abi::kSuccess;
  });
}

Code connect(int device, void* handle, void** sender) {
  return guarded("connect", [&] {
    *sender = nullptr;
    Handle copy;
    std::memcpy(static_cast<void*>(&copy), handle, sizeof copy);
    const auto made = network().connect(device, copy);
    std::memcpy(handle, &copy, sizeof copy);
    if (!made) return failed("connect", made.status());
    *sender = static_cast<Connection*>(made->get());
    return abi::kSuccess;
  });
}

Code accept(void* listener, void** receiver, abi::DeviceHandle**) {
  return guarded("accept", [&] {
    *receiver = static_cast<Connection*>(static_cast<Listener*>(listener)->accept().get());
    return abi::kSuccess;
  });
}

Code register_memory(void* connection, void* data, std::size_t size, int type, void** memory) {
  return guarded("regMr", [&] {
    *memory = nullptr;
    if (type != abi::kPointerHost && type != abi::kPointerCuda) return abi::kInvalidArgument;
    auto& end = *static_cast<Connection*>(connection);
    const auto registered = end.endpoint().register_memory(data, size, end.access());
    if (!registered) return failed("regMr", registered.status());
    *memory = *registered;
    return abi::kSuccess;
  });
}

// The given descriptor is unused: the engine exports its own for the memory at `data`, with the pages that each NIC and
// each method need.
Code register_dmabuf(void* connection, void* data, std::size_t size, int type, std::uint64_t, int, void** memory) {
  return register_memory(connection, data, size, type, memory);
}

Code deregister(void* connection, void* memory) {
  return guarded("deregMr", [&] {
    if (memory == nullptr) return abi::kSuccess;
    const Status status = static_cast<Connection*>(connection)->endpoint().deregister(static_cast<Memory*>(memory));
    return status ? abi::kSuccess : failed("deregMr", status);
  });
}

template <class Size>
Code send(void* sender, void* data, Size size, int tag, void* memory, void** request) {
  return guarded("isend", [&] {
    Request* made = nullptr;
    const Code code = static_cast<Sender*>(static_cast<Connection*>(sender))
                          ->send(data, static_cast<std::size_t>(size), tag, *static_cast<Memory*>(memory), &made);
    *request = made;
    return code;
  });
}

// kOptionalCompletion in *request is ignored; docs/nccl.md says why.
template <class Size>
Code receive(void* receiver, int count, void** data, Size* sizes, int* tags, void** memory, void** request) {
  return guarded("irecv", [&] {
    std::size_t wide[abi::kMostReceives] = {};
    for (int i = 0; i < count && i < abi::kMostReceives; ++i) wide[i] = static_cast<std::size_t>(sizes[i]);
    Request* made = nullptr;
    const Code code =
        static_cast<Receiver*>(static_cast<Connection*>(receiver))->receive(count, data, wide, tags, memory, &made);
    *request = made;
    return code;
  });
}

Code send_profiled(void* sender, void* data, std::size_t size, int tag, void* memory, void*, void** request) {
  return send<std::size_t>(sender, data, size, tag, memory, request);
}
Code receive_profiled(void* receiver, int count, void** data, std::size_t* sizes, int* tags, void** memory, void**,
                      void** request) {
  return receive<std::size_t>(receiver, count, data, sizes, tags, memory, request);
}

// A receive completes once its bytes are visible to the GPU and to everyone else, so there is nothing to flush.
Code flush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return abi::kSuccess;
}

Code test(void* request, int* done, int* sizes) {
  return guarded("test", [&] {
    auto& asked = *static_cast<Request*>(request);
    return asked.owner->test(asked, done, sizes);
  });
}

Code close_connection(void* connection) {
  return guarded("close", [&] { return static_cast<Connection*>(connection)->close(); });
}
Code close_listener(void* listener) {
  return guarded("closeListen", [&] {
    static_cast<Listener*>(listener)->close();
    return abi::kSuccess;
  });
}

// ---- by version ----

constexpr const char* kName = "Fairway";

Code init_v8(abi::Logger logger) {
  return open(logger, false);
}
Code init_v10(abi::Logger logger, abi::Profiler) {
  return open(logger, false);
}
Code init_v11(void** context, std::uint64_t, abi::Config*, abi::Logger logger, abi::Profiler) {
  const Code code = open(logger, true);
  *context = code == abi::kSuccess ? &context_mark : nullptr;
  return code;
}
Code listen_v11(void*, int device, void* handle, void** listener) {
  return listen(device, handle, listener);
}
Code connect_v8(int device, void* handle, void** sender, abi::DeviceHandle**) {
  return connect(device, handle, sender);
}
Code connect_v10(int device, abi::Config*, void* handle, void** sender, abi::DeviceHandle**) {
  return connect(device, handle, sender);
}
Code connect_v11(void*, int device, void* handle, void** sender, abi::DeviceHandle**) {
  return connect(device, handle, sender);
}

// getDeviceMr, irecvConsumed and setNetAttr stay null; NCCL does not call a null entry.
template <class Table>
constexpr Table table(auto init, auto listen, auto connect, auto send, auto receive) {
  Table made{};
  made.name = kName;
  made.init = init;
  made.devices = devices;
  made.properties = properties;
  made.listen = listen;
  made.connect = connect;
  made.accept = accept;
  made.register_memory = register_memory;
  made.register_dmabuf = register_dmabuf;
  made.deregister = deregister;
  made.send = send;
  made.receive = receive;
  made.flush = flush;
  made.test = test;
  made.close_sender = made.close_receiver = close_connection;
  made.close_listener = close_listener;
  if constexpr (requires { made.make_virtual; }) made.make_virtual = make_virtual;
  if constexpr (requires { made.finalize; }) made.finalize = finalize;
  return made;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NCCL looks these names up
extern "C" {
FAIRWAY_API extern const abi::TableV8 ncclNetPlugin_v8;
FAIRWAY_API extern const abi::TableV9 ncclNetPlugin_v9;
FAIRWAY_API extern const abi::TableV10 ncclNetPlugin_v10;
FAIRWAY_API extern const abi::TableV11 ncclNetPlugin_v11;
FAIRWAY_API extern const abi::TableV12 ncclNetPlugin_v12;

const abi::TableV8 ncclNetPlugin_v8 = table<abi::TableV8>(init_v8, listen, connect_v8, send<int>, receive<int>);
const abi::TableV9 ncclNetPlugin_v9 =
    table<abi::TableV9>(init_v8, listen, connect_v8, send<std::size_t>, receive<std::size_t>);
const abi::TableV10 ncclNetPlugin_v10 =
    table<abi::TableV10>(init_v10, listen, connect_v10, send_profiled, receive_profiled);
const abi::TableV11 ncclNetPlugin_v11 =
    table<abi::TableV11>(init_v11, listen_v11, connect_v11, send_profiled, receive_profiled);
const abi::TableV12 ncclNetPlugin_v12 =
    table<abi::TableV12>(init_v11, listen_v11, connect_v11, send_profiled, receive_profiled);
}
// NOLINTEND(readability-identifier-naming)

}  // namespace fairway::nccl
