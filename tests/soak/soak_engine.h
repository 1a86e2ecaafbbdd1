#pragma once

#include <memory>
#include <string>
#include <vector>

#include "soak_memory.h"

namespace fairway::tool::soak {

// One process's engine, its memories, and what it knows of the others. Owner: one thread.
class Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> open(const Settings& settings, unsigned process);

  Engine& engine() { return engine_; }
  [[nodiscard]] unsigned process() const { return process_; }
  Memory& memory(unsigned index) { return *memories_[index]; }
  std::vector<std::unique_ptr<Memory>>& memories() { return memories_; }

  // Connected with the process at that address, whatever was before, and all of its memories known. A process that was
  // given up may take its bound to be known again.
  Status meet(unsigned process, const std::string& address);
  struct Known {
    PeerId peer;
    std::vector<RemoteRegion> memories;
  };
  [[nodiscard]] const Known& known(unsigned process) const { return known_[process]; }
  // The process that this one is; engines: nobody.
  [[nodiscard]] unsigned process_of(PeerId peer) const;
  Status publish(unsigned memory);

 private:
  Endpoint(Engine engine, const Settings& settings, unsigned process);
  Status meet_once(unsigned process, const std::string& address);

  Engine engine_;
  const Settings& settings_;
  const unsigned process_;
  std::vector<std::unique_ptr<Memory>> memories_;
  std::vector<Known> known_;  // by process
};

}  // namespace fairway::tool::soak
