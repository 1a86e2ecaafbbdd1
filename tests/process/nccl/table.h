#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <dlfcn.h>

#include "nccl_net/tables.h"

// The plugin as NCCL sees it: a library, opened at run time, with a table of each version; here behind one face.
namespace fairway::nccl {

using HandleBytes = std::array<std::byte, abi::kHandleBytes>;

struct Facts {  // of getProperties
  std::string name;
  int pointers = 0, most_receives = 0, parts = 0, speed = 0;
};

class Table {
 public:
  virtual ~Table() = default;
  virtual abi::Code init(abi::Logger logger) = 0;
  virtual abi::Code finalize() = 0;
  virtual int devices() = 0;
  virtual abi::Code properties(int device, Facts& facts) = 0;
  virtual abi::Code listen(HandleBytes& handle, void** listener) = 0;
  virtual abi::Code connect(HandleBytes& handle, void** sender) = 0;
  virtual abi::Code accept(void* listener, void** receiver) = 0;
  virtual abi::Code register_memory(void* connection, void* data, std::size_t size, int type, void** memory) = 0;
  virtual abi::Code deregister(void* connection, void* memory) = 0;
  virtual abi::Code send(void* sender, void* data, std::size_t size, int tag, void* memory, void** request) = 0;
  virtual abi::Code receive(void* receiver, int count, void** data, const std::size_t* sizes, int* tags, void** memory,
                            void** request) = 0;
  virtual abi::Code flush(void* receiver, void* data, int size, void* memory, void** request) = 0;
  virtual abi::Code test(void* request, int* done, int* sizes) = 0;
  virtual abi::Code close_sender(void* sender) = 0;
  virtual abi::Code close_receiver(void* receiver) = 0;
  virtual abi::Code close_listener(void* listener) = 0;
};

template <class Native, class Properties, int Version>
class TableOf final : public Table {
 public:
  explicit TableOf(const Native& native) : native_(native) {}
  static constexpr bool kContext = Version >= 11, kProfiled = Version >= 10;

  abi::Code init(abi::Logger logger) override {
    if constexpr (kContext) {
      abi::Config config{-1};
      return native_.init(&context_, 7, &config, logger, nullptr);
    } else if constexpr (kProfiled) {
      return native_.init(logger, nullptr);
    } else {
      return native_.init(logger);
    }
  }
  abi::Code finalize() override {
    if constexpr (kContext) return native_.finalize(context_);
    return abi::kSuccess;
  }
  int devices() override {
    int count = 0;
    return native_.devices(&count) == abi::kSuccess ? count : -1;
  }
  abi::Code properties(int device, Facts& facts) override {
    Properties out{};
    const abi::Code code = native_.properties(device, &out);
    if (code != abi::kSuccess) return code;
    facts = {out.name, out.pointers, out.most_receives, 1, out.speed};
    if constexpr (Version > 8) facts.parts = out.parts.count;
    return code;
  }
  abi::Code listen(HandleBytes& handle, void** listener) override {
    if constexpr (kContext)
      return native_.listen(context_, 0, handle.data(), listener);
    else
      return native_.listen(0, handle.data(), listener);
  }
  abi::Code connect(HandleBytes& handle, void** sender) override {
    abi::DeviceHandle* on_device = nullptr;
    if constexpr (kContext)
      return native_.connect(context_, 0, handle.data(), sender, &on_device);
    else if constexpr (kProfiled)
      return native_.connect(0, nullptr, handle.data(), sender, &on_device);
    else
      return native_.connect(0, handle.data(), sender, &on_device);
  }
  abi::Code accept(void* listener, void** receiver) override {
    abi::DeviceHandle* on_device = nullptr;
    return native_.accept(listener, receiver, &on_device);
  }
  abi::Code register_memory(void* connection, void* data, std::size_t size, int type, void** memory) override {
    return native_.register_memory(connection, data, size, type, memory);
  }
  abi::Code deregister(void* connection, void* memory) override { return native_.deregister(connection, memory); }
  abi::Code send(void* sender, void* data, std::size_t size, int tag, void* memory, void** request) override {
    if constexpr (kProfiled)
      return native_.send(sender, data, size, tag, memory, nullptr, request);
    else if constexpr (Version == 8)
      return native_.send(sender, data, static_cast<int>(size), tag, memory, request);
    else
      return native_.send(sender, data, size, tag, memory, request);
  }
  abi::Code receive(void* receiver, int count, void** data, const std::size_t* sizes, int* tags, void** memory,
                    void** request) override {
    std::array<std::size_t, 64> wide{};
    std::array<int, 64> narrow{};
    for (int i = 0; i < count; ++i) narrow[i] = static_cast<int>(wide[i] = sizes[i]);
    if constexpr (kProfiled)
      return native_.receive(receiver, count, data, wide.data(), tags, memory, nullptr, request);
    else if constexpr (Version == 8)
      return native_.receive(receiver, count, data, narrow.data(), tags, memory, request);
    else
      return native_.receive(receiver, count, data, wide.data(), tags, memory, request);
  }
  abi::Code flush(void* receiver, void* data, int size, void* memory, void** request) override {
    return native_.flush(receiver, 1, &data, &size, &memory, request);
  }
  abi::Code test(void* request, int* done, int* sizes) override { return native_.test(request, done, sizes); }
  abi::Code close_sender(void* sender) override { return native_.close_sender(sender); }
  abi::Code close_receiver(void* receiver) override { return native_.close_receiver(receiver); }
  abi::Code close_listener(void* listener) override { return native_.close_listener(listener); }

 private:
  const Native& native_;
  void* context_ = nullptr;
};

// The table of that version. The library stays, as NCCL's does.
inline std::unique_ptr<Table> open_table(int version) {
  void* library = ::dlopen(FAIRWAY_NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  const std::string name = "ncclNetPlugin_v" + std::to_string(version);
  void* table = ::dlsym(library, name.c_str());
  if (table == nullptr) throw std::runtime_error("no " + name);
  switch (version) {
    case 8: return std::make_unique<TableOf<abi::TableV8, abi::PropertiesV8, 8>>(*static_cast<abi::TableV8*>(table));
    case 9: return std::make_unique<TableOf<abi::TableV9, abi::PropertiesV9, 9>>(*static_cast<abi::TableV9*>(table));
    case 10:
      return std::make_unique<TableOf<abi::TableV10, abi::PropertiesV9, 10>>(*static_cast<abi::TableV10*>(table));
    case 11:
      return std::make_unique<TableOf<abi::TableV11, abi::PropertiesV11, 11>>(*static_cast<abi::TableV11*>(table));
    default:
      return std::make_unique<TableOf<abi::TableV12, abi::PropertiesV12, 12>>(*static_cast<abi::TableV12*>(table));
  }
}

}  // namespace fairway::nccl
