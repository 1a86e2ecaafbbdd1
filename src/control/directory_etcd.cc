#include "control/directory.h"

#ifndef FAIRWAY_HAVE_ETCD

namespace fairway::control {

Result<std::unique_ptr<Directory>> open_etcd_directory(const std::string&, ControlContext&, Directory::Answers&) {
  return Status(
      ErrorCode::unsupported,
      "this build has no etcd support: install libhttp-parser-dev and nlohmann-json3-dev and configure again, "
      "or use \"serve\" and \"host:port\"");
}

}  // namespace fairway::control

#else

#include <algorithm>
#include <deque>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>

#include "control/http_connection.h"

namespace fairway::control {
namespace {

using nlohmann::json;

constexpr const char* kEtcdPrefix = "fairway/";
constexpr int kUnauthenticated = 16;  // gRPC's code

struct EtcdPlace {
  std::vector<std::string> addresses;  // of the cluster's members
  std::string user, password;
  std::string prefix = kEtcdPrefix;
};

Result<EtcdPlace> parse_etcd_url(const std::string& url) {
  EtcdPlace place;
  std::string rest = url.substr(std::string("etcd://").size());
  if (const auto slash = rest.find('/'); slash != std::string::npos) {
    if (slash + 1 < rest.size()) place.prefix = rest.substr(slash + 1);
    rest.resize(slash);
  }
  if (const auto at = rest.rfind('@'); at != std::string::npos) {
    const auto colon = rest.find(':');
    place.user = rest.substr(0, std::min(colon, at));
    if (colon < at) place.password = rest.substr(colon + 1, at - colon - 1);
    rest = rest.substr(at + 1);
  }
  for (std::size_t from = 0; from <= rest.size();) {
    const std::size_t end = std::min(rest.find(',', from), rest.size());
    place.addresses.push_back(rest.substr(from, end - from));
    from = end + 1;
    const auto colon = place.addresses.back().rfind(':');
    if (colon == 0 || colon == std::string::npos || colon + 1 == place.addresses.back().size())
      return Status(ErrorCode::invalid_argument,
                    "EngineOptions::directory: each member of etcd needs a host and a port; write "
                    "etcd://[user:password@]host:port[,host:port...][/prefix]");
  }
  return place;
}

std::string base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  text.resize(static_cast<std::size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                                       reinterpret_cast<const unsigned char*>(bytes.data()),
                                                       static_cast<int>(bytes.size()))));
  return text;
}

// Empty: not base64, or of nothing.
std::string from_base64(const std::string& text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (size < 0) return {};
  const auto padding = static_cast<std::size_t>(text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0);
  bytes.resize(static_cast<std::size_t>(size) - padding);
  return bytes;
}

// What lies at `path` in a response, or null where something else came.
template <class... Path>
const json* find(const json& root, const Path&... path) {
  const json* at = &root;
  const auto step = [&at](const auto& key) {
    if constexpr (std::is_convertible_v<decltype(key), std::size_t>) {
      at = at != nullptr && at->is_array() && key < at->size() ? &(*at)[key] : nullptr;
    } else {
      if (at == nullptr || !at->is_object()) {
        at = nullptr;
        return;
      }
      const auto found = at->find(key);
      at = found == at->end() ? nullptr : &*found;
    }
  };
  (step(path), ...);
  return at;
}
std::string text_at(const json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}
bool is_true(const json* value) {
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

// A cluster of etcd, by its JSON gateway (etcd 3.4 or later, plain HTTP). One request is in flight at a time. Used on
// the control thread.
class EtcdDirectory final : public Directory {
 public:
  EtcdDirectory(EtcdPlace place, ControlContext& context, Answers& answers)
      : place_(std::move(place)), context_(context), answers_(answers) {}

  void ask(Request request, Time now) override;
  Time step(Time now) override;

 private:
  // Of the first request: to publish takes a lease and then a transaction; with a user, a token comes first.
  enum class Stage : std::uint8_t { idle, token, lease, operation };
  struct Waiting {
    Request request;
    bool token_renewed = false;
  };

  Status dial();
  void post(Time now);
  void post(Stage stage, std::string_view path, const json& body);
  Status on_response(const HttpResponse& response);
  Status on_refusal(const json& body, unsigned status);
  Status on_result(const json& body);
  void answer(Result<std::string> result);
  void lost(Status why, Time now);
  [[nodiscard]] const std::string& address() const { return place_.addresses[member_]; }

  const EtcdPlace place_;
  ControlContext& context_;
  Answers& answers_;
  std::size_t member_ = 0;  // the one it is connected to, or dials next
  std::unique_ptr<HttpConnection> http_;
  std::deque<Waiting> waiting_;
  Stage stage_ = Stage::idle;
  std::string token_, lease_;
  Time until_ = kNever;  // for the response
  Time retry_at_ = 0;
  std::uint32_t failures_ = 0;
  Status last_error_;
};

void EtcdDirectory::ask(Request request, Time now) {
  if (!http_ && now < retry_at_) return answers_.answered(request.id, last_error_);
  if (waiting_.size() >= RemoteDirectoryLimits::kMaxWaiting)
    return answers_.answered(request.id, Status(ErrorCode::queue_full, "too many requests to etcd are pending"));
  waiting_.push_back({std::move(request)});
}

Status EtcdDirectory::dial() {
  auto channel = context_.runtime.network.dial(address(), *context_.task);
  if (!channel) return channel.status();
  http_ = std::make_unique<HttpConnection>(std::move(channel).value(), address());
  token_.clear();
  return {};
}

// The next step of the first request.
void EtcdDirectory::post(Time now) {
  until_ = after(now, RemoteDirectoryLimits::kAnswerBound);
  const Request& request = waiting_.front().request;
  if (!place_.user.empty() && token_.empty())
    return post(Stage::token, "/v3/auth/authenticate", {{"name", place_.user}, {"password", place_.password}});
  if (request.kind == Kind::publish && lease_.empty()) {
    const Time seconds = (request.lifetime + kSecond - 1) / kSecond;
    return post(Stage::lease, "/v3/lease/grant", {{"TTL", std::to_string(seconds)}});
  }
  const std::string key = base64(place_.prefix + request.name);
  // Records begin with the start time, in text of one length, and go on with text: what is less than this is a record
  // of that start time or of an earlier one.
  const auto not_later = [&key](std::string_view started) {
    return json{
        {"key", key}, {"target", "VALUE"}, {"result", "LESS"}, {"value", base64(std::string(started) + '\xff')}};
  };
  if (request.kind == Kind::lookup) return post(Stage::operation, "/v3/kv/range", {{"key", key}});
  if (request.kind == Kind::withdraw)
    return post(Stage::operation, "/v3/kv/txn",
                {{"compare",
                  {not_later(request.started),
                   {{"key", key}, {"target", "VALUE"}, {"result", "GREATER"}, {"value", base64(request.started)}}}},
                 {"success", json::array({{{"request_delete_range", {{"key", key}}}}})}});
  const json put{{"request_put", {{"key", key}, {"value", base64(request.record)}, {"lease", lease_}}}};
  // A comparison of a value fails where there is no key, so the absent key is the first question.
  const json replace{{"compare", json::array({not_later(std::string_view(request.record).substr(0, kStartedText))})},
                     {"success", json::array({put})}};
  post(Stage::operation, "/v3/kv/txn",
       {{"compare", json::array({{{"key", key}, {"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", "0"}}})},
        {"success", json::array({put})},
        {"failure", json::array({{{"request_txn", replace}}})}});
}

void EtcdDirectory::post(Stage stage, std::string_view path, const json& body) {
  stage_ = stage;
  http_->post(path, body.dump(), token_);
}

Time EtcdDirectory::step(Time now) {
  for (;;) {
    if (http_) {
      if (Status status = http_->step(); !status) {
        lost(status, now);
        return kNever;
      }
      if (const auto response = http_->take()) {
        if (Status status = on_response(*response); !status) {
          lost(status, now);
          return kNever;
        }
        if (http_->ends()) http_.reset();
      } else if (http_->busy()) {
        if (now < until_) return until_;
        lost({ErrorCode::timed_out, "it does not answer"}, now);
        return kNever;
      }
    }
    if (waiting_.empty()) return kNever;
    if (!http_)
      if (Status status = dial(); !status) {
        lost(status, now);
        return kNever;
      }
    post(now);
  }
}

Status EtcdDirectory::on_response(const HttpResponse& response) {
  const json body = json::parse(response.body, nullptr, false);
  if (!body.is_object()) return {ErrorCode::protocol_error, "the server there does not speak etcd's JSON"};
  failures_ = 0;
  if (response.status != 200) return on_refusal(body, response.status);
  return on_result(body);
}

Status EtcdDirectory::on_refusal(const json& body, unsigned status) {
  std::string text = server_text(text_at(find(body, "error")));
  if (text.empty()) text = fmt::format("HTTP status {}", status);
  const json* const code = find(body, "code");
  const bool unauthenticated = code != nullptr && code->is_number_integer() && *code == kUnauthenticated;
  // Tokens expire.
  if (unauthenticated && stage_ == Stage::operation && !token_.empty() && !waiting_.front().token_renewed) {
    waiting_.front().token_renewed = true;
    token_.clear();
    return {};
  }
  answer(Status(ErrorCode::unreachable, fmt::format("etcd at {} refused: {}", address(), text)));
  return {};
}

Status EtcdDirectory::on_result(const json& body) {
  const Status malformed(ErrorCode::protocol_error, "the server there does not answer as etcd does");
  if (stage_ == Stage::token) {
    token_ = text_at(find(body, "token"));
    const bool printable = std::all_of(token_.begin(), token_.end(), [](char each) { return each > 32 && each < 127; });
    return token_.empty() || !printable ? malformed : Status();
  }
  if (stage_ == Stage::lease) {
    lease_ = text_at(find(body, "ID"));
    const bool number = std::all_of(lease_.begin(), lease_.end(), [](char each) { return each >= '0' && each <= '9'; });
    return lease_.empty() || !number ? malformed : Status();
  }
  if (find(body, "header") == nullptr) return malformed;
  const Request& request = waiting_.front().request;
  switch (request.kind) {
    case Kind::withdraw: answer(std::string()); break;
    case Kind::publish:
      if (is_true(find(body, "succeeded")) ||
          is_true(find(body, "responses", std::size_t{0}, "response_txn", "succeeded")))
        answer(std::string());
      else
        answer(Status(ErrorCode::already_exists, fmt::format("a later engine has the name {}", request.name)));
      break;
    case Kind::lookup:
      if (const json* const value = find(body, "kvs", std::size_t{0}, "value"))
        answer(from_base64(text_at(value)));
      else
        answer(Status(ErrorCode::not_found, fmt::format("no engine has published the name {}", request.name)));
      break;
  }
  return {};
}

// The first request's; the next one starts over.
void EtcdDirectory::answer(Result<std::string> result) {
  const std::uint64_t id = waiting_.front().request.id;
  waiting_.pop_front();
  stage_ = Stage::idle;
  lease_.clear();
  answers_.answered(id, std::move(result));
}

void EtcdDirectory::lost(Status why, Time now) {
  http_.reset();
  stage_ = Stage::idle;
  lease_.clear();
  retry_at_ = after(now, context_.jittered(RemoteDirectoryLimits::pause_after(failures_++)));
  last_error_ = Status(ErrorCode::unreachable, fmt::format("etcd at {}: {}", address(), why.message()));
  member_ = (member_ + 1) % place_.addresses.size();
  for (const Waiting& each : std::exchange(waiting_, {})) answers_.answered(each.request.id, last_error_);
  answers_.lost();
}

}  // namespace

Result<std::unique_ptr<Directory>> open_etcd_directory(const std::string& url, ControlContext& context,
                                                       Directory::Answers& answers) {
  auto place = parse_etcd_url(url);
  if (!place) return place.status();
  return std::unique_ptr<Directory>(new EtcdDirectory(std::move(place).value(), context, answers));
}

}  // namespace fairway::control

#endif
