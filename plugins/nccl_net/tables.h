#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl_net/abi.h"

// The tables that NCCL looks up by name (ncclNetPlugin_v8 ... _v12) and the properties they fill. Order and types of
// the members are the contract; the names are ours. Checked member by member against NCCL's public headers: v8 to v10
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
  float latency;  // us; 0: not said
  int most_connections;
  int most_receives;  // in one group
  int device_type;
  int device_version;
};

// Both v9 and v10.
struct PropertiesV9 {
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
  VirtualDevice<4> parts;
  std::size_t most_p2p_bytes;
  std::size_t most_collective_bytes;
};

struct PropertiesV11 : PropertiesV9 {
  int most_requests_in_one;
};

struct PropertiesV12 {
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
  VirtualDevice<8> parts;
  std::size_t most_p2p_bytes;
  std::size_t most_collective_bytes;
  int most_requests_in_one;
  std::int16_t rail;
  std::int16_t plane;
};

// What no version changed, from regMr to deregMr and from iflush to irecvConsumed.
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

struct TableV8 {
  const char* name;
  Code (*init)(Logger logger);
  Code (*devices)(int* count);
  Code (*properties)(int device, PropertiesV8* properties);
  Code (*listen)(int device, void* handle, void** listener);
  Code (*connect)(int device, void* handle, void** sender, DeviceHandle** on_device);
  Accept accept;
  Register register_memory;
  RegisterDmaBuf register_dmabuf;
  Deregister deregister;
  Code (*send)(void* sender, void* data, int size, int tag, void* memory, void** request);
  Code (*receive)(void* receiver, int count, void** data, int* sizes, int* tags, void** memory, void** request);
  Flush flush;
  Test test;
  Close close_sender, close_receiver, close_listener;
  DeviceMemory device_memory;
  Consumed consumed;
};

// Sizes are 64 bits wide, NICs fuse.
struct TableV9 {
  const char* name;
  Code (*init)(Logger logger);
  Code (*devices)(int* count);
  Code (*properties)(int device, PropertiesV9* properties);
  Code (*listen)(int device, void* handle, void** listener);
  Code (*connect)(int device, void* handle, void** sender, DeviceHandle** on_device);
  Accept accept;
  Register register_memory;
  RegisterDmaBuf register_dmabuf;
  Deregister deregister;
  Code (*send)(void* sender, void* data, std::size_t size, int tag, void* memory, void** request);
  Code (*receive)(void* receiver, int count, void** data, std::size_t* sizes, int* tags, void** memory, void** request);
  Flush flush;
  Test test;
  Close close_sender, close_receiver, close_listener;
  DeviceMemory device_memory;
  Consumed consumed;
  Code (*make_virtual)(int* device, VirtualDevice<4>* parts);
};

using Send = Code (*)(void* sender, void* data, std::size_t size, int tag, void* memory, void* profiled,
                      void** request);
using Receive = Code (*)(void* receiver, int count, void** data, std::size_t* sizes, int* tags, void** memory,
                         void** profiled, void** request);

// A profiler, and a configuration for each connection.
struct TableV10 {
  const char* name;
  Code (*init)(Logger logger, Profiler profiler);
  Code (*devices)(int* count);
  Code (*properties)(int device, PropertiesV9* properties);
  Code (*listen)(int device, void* handle, void** listener);
  Code (*connect)(int device, Config* config, void* handle, void** sender, DeviceHandle** on_device);
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
  Code (*make_virtual)(int* device, VirtualDevice<4>* parts);
};

// One context for each communicator, and an end.
template <class Properties, int MostParts>
struct TableWithContext {
  const char* name;
  Code (*init)(void** context, std::uint64_t communicator, Config* config, Logger logger, Profiler profiler);
  Code (*devices)(int* count);
  Code (*properties)(int device, Properties* properties);
  Code (*listen)(void* context, int device, void* handle, void** listener);
  Code (*connect)(void* context, int device, void* handle, void** sender, DeviceHandle** on_device);
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
  Code (*make_virtual)(int* device, VirtualDevice<MostParts>* parts);
  Code (*finalize)(void* context);
  Code (*set_attributes)(void* context, void* attributes);  // null: not wanted
};
using TableV11 = TableWithContext<PropertiesV11, 4>;
using TableV12 = TableWithContext<PropertiesV12, 8>;

}  // namespace fairway::nccl::abi
