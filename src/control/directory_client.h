#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/context.h"
#include "control/directory.h"

namespace fairway::control {

// This engine's client of the directory, whatever stores it. Publishes the engine's record, renews it before it
// expires, and looks up names until they are found or the caller's timeout passes. Used on the control thread.
class DirectoryClient final : private Directory::Answers {
 public:
  explicit DirectoryClient(ControlContext& context) : context_(context) {}

  // Opens Options::directory. `table` is the table that this engine serves, or null.
  Status open(DirectoryTable* table);
  void resolve(const std::string& name, std::uint64_t token, Time deadline, Time now);
  void leave(const Status& reason, Time now);  // completes the pending lookups with `reason` and withdraws the record
  bool left() const { return withdraw_id_ == 0; }  // the withdrawal was answered, or there was nothing to withdraw
  Time step(Time now);

  static constexpr Time kLifetime = 10 * kSecond;  // lifetime of a record; it is renewed after a third of it

 private:
  struct Resolution {
    std::string name;
    std::uint64_t token;
    Time deadline;
    std::uint64_t id = 0;  // id of the request in flight; 0: none
    Time next_ask;
    std::uint32_t asked = 0;
    Status last;
    bool done = false;
  };

  void publish(Time now);
  void answered(std::uint64_t id, Result<std::string> result) override;
  void lost() override;
  void on_published(const Status& status);
  void on_record(Resolution& resolution, Result<std::string> result);
  void finish(Resolution& resolution, Result<std::string> address);

  ControlContext& context_;
  std::unique_ptr<Directory> directory_;
  Time now_ = 0;  // time of the current step or call
  std::uint64_t next_id_ = 1;
  std::vector<Resolution> resolutions_;

  std::uint64_t publish_id_ = 0;  // id of the publication in flight; 0: none
  Time publish_at_ = 0;
  std::uint32_t publish_failures_ = 0;
  std::optional<ErrorCode> published_;  // the state last reported to the observer
  bool leaving_ = false;
  std::uint64_t withdraw_id_ = 0;
};

}  // namespace fairway::control
