#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/directory.h"
#include "control/self.h"

namespace fairway::control {

// This engine's use of a directory, whatever keeps it: publishes its record and renews it before it expires, and asks
// for names until they are found or the asker's time is over. Control's thread.
class Naming final : private Directory::Answers {
 public:
  explicit Naming(Self& self) : self_(self) {}

  // Opens Options::directory; `table` is the one that this engine serves, if it does.
  Status open(DirectoryTable* table);
  void resolve(const std::string& name, std::uint64_t token, Time deadline, Time now);
  void leave(const Status& reason, Time now);      // answers who waits and withdraws the record
  bool left() const { return withdraw_id_ == 0; }  // that was answered, or there is nothing to withdraw
  Time step(Time now);

  static constexpr Time kLifetime = 10 * kSecond;  // of a record; renewed after a third

 private:
  struct Asking {
    std::string name;
    std::uint64_t token;
    Time deadline;
    std::uint64_t id = 0;  // of the question on its way; 0: none
    Time next_ask;
    std::uint32_t asked = 0;
    Status last;
    bool done = false;
  };

  void publish(Time now);
  void answered(std::uint64_t id, Result<std::string> result) override;
  void lost() override;
  void on_published(const Status& status);
  void on_record(Asking& asking, Result<std::string> result);
  void finish(Asking& asking, Result<std::string> address);

  Self& self_;
  std::unique_ptr<Directory> directory_;
  Time now_ = 0;  // of the step or call that runs
  std::uint64_t next_id_ = 1;
  std::vector<Asking> asking_;

  std::uint64_t publish_id_ = 0;  // on its way
  Time publish_at_ = 0;
  std::uint32_t publish_failures_ = 0;
  std::optional<ErrorCode> published_;  // what the observer was told last
  bool leaving_ = false;
  std::uint64_t withdraw_id_ = 0;
};

}  // namespace fairway::control
