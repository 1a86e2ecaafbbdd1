#include "control/directory.h"
#include "control/directory_table.h"

namespace fairway::control {
namespace {

// Answers from the table that this engine serves. Used on the control thread.
class LocalDirectory final : public Directory {
 public:
  LocalDirectory(DirectoryTable& table, Answers& answers, Clock& clock)
      : table_(table), answers_(answers), clock_(clock) {}

  void ask(Request request, Time) override {
    if (request.kind == Kind::lookup)
      return answers_.answered(request.id, table_.lookup(request.name, clock_.unix_ns()));
    const Status status = request.kind == Kind::publish ? table_.publish(request.record, clock_.unix_ns())
                                                        : table_.withdraw(request.name, request.started);
    answers_.answered(request.id, status ? Result<std::string>(std::string()) : status);
  }
  Time step(Time) override { return kNever; }

 private:
  DirectoryTable& table_;
  Answers& answers_;
  Clock& clock_;
};

}  // namespace

std::unique_ptr<Directory> open_local_directory(DirectoryTable& table, Directory::Answers& answers, Clock& clock) {
  return std::make_unique<LocalDirectory>(table, answers, clock);
}

Status check_directory(const std::string& directory) {
  if (directory.empty() || directory == "serve" || directory.rfind(':') != std::string::npos) return {};
  return {
      ErrorCode::invalid_argument,
      "EngineOptions::directory is \"" + directory +
          "\"; it may be empty, \"serve\", \"host:port\" of the engine that serves, \"redis://host:port[/prefix]\", or "
          "\"etcd://host:port[,host:port...][/prefix]\""};
}

}  // namespace fairway::control
