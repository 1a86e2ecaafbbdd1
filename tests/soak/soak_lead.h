#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "other_process.h"
#include "soak_plan.h"
#include "soak_words.h"

namespace fairway::tool::soak {

// The processes of a soak, and what is done to them. Owner: one thread.
class Lead {
 public:
  explicit Lead(const Settings& settings) : settings_(settings), processes_(settings.engines) {}

  // Each with an engine, and all of them connected.
  Status start();
  // What is not as promised; empty: all is. An error: they cannot go on.
  struct Played {
    std::vector<std::optional<Ended>> ended;  // by step; none: its process was killed
    std::vector<std::string> wrong;
  };
  Result<Played> play(const Round& round);
  // What they hold more than after their first rounds, in words; empty: nothing. Waits a little, as some is given back
  // by and by.
  Result<std::string> leaks();
  // What they hold, of all together.
  Result<Held> held();

 private:
  struct Process {
    OtherProcess process;
    std::string address;
    unsigned rounds = 0;  // of its life
    std::optional<Held> usual;
  };
  Status start(unsigned index);
  Status meet();
  Status tell(unsigned index, const std::string& words);
  // Lines up to that one; what is wrong is put aside.
  Status hear(unsigned index, const std::string& wanted, std::vector<std::string>& wrong);
  Result<std::vector<Said>> hear_block(unsigned index, const std::string& wanted, std::vector<std::string>& wrong);
  Result<Held> held(unsigned index);
  void disturb(const Fault& fault);

  const Settings& settings_;
  std::vector<Process> processes_;
};

}  // namespace fairway::tool::soak
