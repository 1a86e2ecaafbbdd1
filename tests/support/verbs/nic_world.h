#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "support/verbs/nic.h"

// What the parts of the stand-in NICs (nic*.cc) share.
namespace fairway::support::nic {

struct Nic {
  abi::Device device{};
  abi::Device* list[3]{};
  std::optional<std::uint8_t> network = std::uint8_t{0};  // empty: no address
  std::vector<std::uint16_t> partitions{0xffff};
  bool plugged = true;
  std::uint64_t asked_for_events = 0;
};
struct Open {
  abi::Context context{};  // must be first: its address is the context handle
  std::size_t nic = 0;
  std::deque<int> events;
};
struct Region {
  abi::MemoryRegion region{};  // must be first
  unsigned char* bytes = nullptr;
  int access = 0;
  int gpu = -1;
  std::uint64_t pinned = 0;
};
struct Queue {
  abi::CompletionQueue queue{};  // must be first
  std::deque<abi::WorkCompletion> done;
  bool armed = false;
};
struct Channel {
  abi::CompletionChannel channel{};  // must be first
  std::deque<abi::CompletionQueue*> events;
};
struct Receive {
  std::uint64_t id = 0;
  abi::Gather place{};
};
struct Pair {
  abi::QueuePair pair{};  // must be first
  std::uint32_t peer = 0;
  unsigned access = 0;
  std::deque<Receive> receives;
  std::uint64_t sends_taken = 0, receives_taken = 0;
};
struct OnItsWay {  // bytes for a GPU that are not visible yet
  int gpu = 0;
  unsigned char* to = nullptr;
  std::vector<unsigned char> bytes;
};

struct World {
  std::mutex mutex;  // guards all below
  Settings settings;
  Counts counts;
  std::array<Nic, 2> nics;
  std::map<std::uint32_t, Region*> regions;  // by key
  std::map<std::uint32_t, Pair*> pairs;      // by number
  std::vector<Open*> opened;
  std::vector<OnItsWay> posted;
  std::uint32_t next = 0x101;
  std::uint64_t pinned = 0;
};
inline World& world() {
  static World* const made = [] {
    auto* fresh = new World;
    for (std::size_t i = 0; i < fresh->nics.size(); ++i) {
      abi::Device& device = fresh->nics[i].device;
      device.name[0] = 'n', device.name[1] = 'i', device.name[2] = 'c', device.name[3] = static_cast<char>('0' + i);
      std::strcpy(device.dev_name, "null");
      std::strcpy(device.ibdev_path, "/nowhere");
    }
    return fresh;
  }();
  return *made;
}

template <class Whole, class Part>
Whole& of(Part* part) {
  return *reinterpret_cast<Whole*>(part);
}

// nic_queues.cc
void add_calls(abi::Context& context);
void add_queues(transport::verbs::Library& table);
void to_error(Pair& pair);  // and flushes its receives; the mutex is held
// nic_memory.cc
void add_memory(transport::verbs::Library& table);
void arrive(int gpu, bool pushed);  // bytes on their way to that GPU become visible; the mutex is held

}  // namespace fairway::support::nic
