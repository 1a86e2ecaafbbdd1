#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl_net/abi.h"

// The tables that NCCL looks up by name (ncclNetPlugin_v8 ... _v12) and the properties they fill. The order and types
// of members are NCCL's ABI; the names are ours. Checked member by member against NCCL's public headers: v8 to v10
// of 2.27.7, v11 of 2.28.3, v12 of 2.30.7, where the older ones are unchanged.
namespace fairway::nccl::abi {

struct PropertiesV8 {
  char* name;
  char* pci_path;  // in /sys; null: none
  std::uint64_t guid;
  int pointers;  // kPointerHost | kPointerCuda
  int registration_is_global;
  int speed;  // Mb/s
  int port;
  float latency;  // microseconds; 0: unknown
  int most_connections;
  int most_receives;  // in one grouped receive
  int device_type;
  int device_version;
};

// Properties from v9 on; later versions append members.
template <int MostParts>
struct PropertiesWithParts {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int pointers;
  int registration_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int most_connections;
  int most_receives;
  int device_type;
  int device_version;
  VirtualDevice<MostParts> parts;
  std::size_t most_p2p_bytes;
  std::size_t most_collective_bytes;
};
using PropertiesV9 = PropertiesWithParts<4>;  // v10 too

struct PropertiesV11 : PropertiesWithParts<4> {
  int most_requests_in_one;
};

struct PropertiesV12 : PropertiesWithParts<8> {
  int most_requests_in_one;
  std::int16_t rail;
  std::int16_t plane;
};

// Signatures that are the same in all versions, from regMr to deregMr and from iflush to irecvConsumed.
using Accept = Code (*)(void* listener, void** receiver, DeviceHandle** device);
using Register = Code (*)(void* connection, void* data, std::size_t size, int type, void** memory);
using RegisterDmaBuf = Code (*)(void* connection, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                                void** memory);
using Deregister = Code (*)(void* connection, void* memory);
using Flush = Code (*)(void* receiver, int count, void** data, int* sizes, void** memory, void** request);
using Test = Code (*)(void* request, int* done, int* sizes);
using Close = Code (*)(void* object);
using DeviceMemory = Code (*)(void* connection, void* memory, void** on_device);
using Consumed = Code (*)(void* receiver, int count, void* request);

// The members that all versions share, in this order. Later versions append to them; types that changed are parameters.
template <class Properties, class Init, class Listen, class Connect, class Send, class Receive>
struct Table {
  const char* name;
  Init init;
  Code (*devices)(int* count);
  Code (*properties)(int device, Properties* properties);
  Listen listen;
  Connect connect;
  Accept accept;
  Register register_memory;
  RegisterDmaBuf register_dmabuf;
  Deregister deregister;
  Send send;
  Receive receive;
  Flush flush;
  Test test;
  Close close_sender, close_receiver, close_listener;
  DeviceMemory device_memory;
  Consumed consumed;
};

using Init = Code (*)(Logger logger);
using Listen = Code (*)(int device, void* handle, void** listener);
using Connect = Code (*)(int device, void* handle, void** sender, DeviceHandle** on_device);
template <class Size>
using Send = Code (*)(void* sender, void* data, Size size, int tag, void* memory, void** request);
template <class Size>
using Receive = Code (*)(void* receiver, int count, void** data, Size* sizes, int* tags, void** memory, void** request);
template <int MostParts>
using MakeVirtual = Code (*)(int* device, VirtualDevice<MostParts>* parts);

using TableV8 = Table<PropertiesV8, Init, Listen, Connect, Send<int>, Receive<int>>;

// v9: 64-bit sizes, fused NICs.
struct TableV9 : Table<PropertiesV9, Init, Listen, Connect, Send<std::size_t>, Receive<std::size_t>> {
  MakeVirtual<4> make_virtual;
};

// v10: a profiler, and a configuration per connection.
using ProfiledInit = Code (*)(Logger logger, Profiler profiler);
using ConfiguredConnect = Code (*)(int device, Config* config, void* handle, void** sender, DeviceHandle** on_device);
using ProfiledSend = Code (*)(void* sender, void* data, std::size_t size, int tag, void* memory, void* profiled,
                              void** request);
using ProfiledReceive = Code (*)(void* receiver, int count, void** data, std::size_t* sizes, int* tags, void** memory,
                                 void** profiled, void** request);
struct TableV10 : Table<PropertiesV9, ProfiledInit, Listen, ConfiguredConnect, ProfiledSend, ProfiledReceive> {
  MakeVirtual<4> make_virtual;
};

// v11: one context per communicator, and finalize.
using ContextInit = Code (*)(void** context, std::uint64_t communicator, Config* config, Logger logger,
                             Profiler profiler);
using ContextListen = Code (*)(void* context, int device, void* handle, void** listener);
using ContextConnect = Code (*)(void* context, int device, void* handle, void** sender, DeviceHandle** on_device);
template <class Properties, int MostParts>
struct TableWithContext : Table<Properties, ContextInit, ContextListen, ContextConnect, ProfiledSend, ProfiledReceive> {
  MakeVirtual<MostParts> make_virtual;
  Code (*finalize)(void* context);
  Code (*set_attributes)(void* context, void* attributes);  // null: not supported
};
using TableV11 = TableWithContext<PropertiesV11, 4>;
using TableV12 = TableWithContext<PropertiesV12, 8>;

// A base's members come before the members that a derived table adds, without a gap.
static_assert(sizeof(TableV8) == 19 * sizeof(void*) && sizeof(TableV10) == 20 * sizeof(void*));
static_assert(sizeof(TableV9) == 20 * sizeof(void*) && sizeof(TableV12) == 22 * sizeof(void*));
static_assert(sizeof(PropertiesV9) == 104 && sizeof(PropertiesV11) == 112 && sizeof(PropertiesV12) == 128);

}  // namespace fairway::nccl::abi
