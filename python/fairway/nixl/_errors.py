"""NIXL's status codes and exceptions, and what Fairway's errors are in them."""

import enum
import functools

import fairway


class nixl_status_t(enum.IntEnum):
    NIXL_IN_PROG = 1
    NIXL_SUCCESS = 0
    NIXL_ERR_NOT_POSTED = -1
    NIXL_ERR_INVALID_PARAM = -2
    NIXL_ERR_BACKEND = -3
    NIXL_ERR_NOT_FOUND = -4
    NIXL_ERR_MISMATCH = -5
    NIXL_ERR_NOT_ALLOWED = -6
    NIXL_ERR_REPOST_ACTIVE = -7
    NIXL_ERR_UNKNOWN = -8
    NIXL_ERR_NOT_SUPPORTED = -9
    NIXL_ERR_REMOTE_DISCONNECT = -10
    NIXL_ERR_CANCELED = -11
    NIXL_ERR_NO_TELEMETRY = -12


def _exception(name, code):
    return type(name, (Exception,), {"__doc__": f"{code}, with Fairway's own words behind it.", "__module__": __name__})  # where it is found, so that it can be pickled


nixlNotPostedError = _exception("nixlNotPostedError", "NIXL_ERR_NOT_POSTED")
nixlInvalidParamError = _exception("nixlInvalidParamError", "NIXL_ERR_INVALID_PARAM")
nixlBackendError = _exception("nixlBackendError", "NIXL_ERR_BACKEND")
nixlNotFoundError = _exception("nixlNotFoundError", "NIXL_ERR_NOT_FOUND")
nixlMismatchError = _exception("nixlMismatchError", "NIXL_ERR_MISMATCH")
nixlNotAllowedError = _exception("nixlNotAllowedError", "NIXL_ERR_NOT_ALLOWED")
nixlRepostActiveError = _exception("nixlRepostActiveError", "NIXL_ERR_REPOST_ACTIVE")
nixlUnknownError = _exception("nixlUnknownError", "NIXL_ERR_UNKNOWN")
nixlNotSupportedError = _exception("nixlNotSupportedError", "NIXL_ERR_NOT_SUPPORTED")
nixlRemoteDisconnectError = _exception("nixlRemoteDisconnectError", "NIXL_ERR_REMOTE_DISCONNECT")
nixlCancelledError = _exception("nixlCancelledError", "NIXL_ERR_CANCELED")
nixlNoTelemetryError = _exception("nixlNoTelemetryError", "NIXL_ERR_NO_TELEMETRY")

_KINDS = {
    nixlInvalidParamError: ("invalid_argument", "out_of_range", "truncated"),
    nixlNotFoundError: ("not_found",),
    nixlNotAllowedError: ("access_denied", "already_exists", "not_fenced", "queue_full", "revoked"),
    nixlNotSupportedError: ("unsupported",),
    nixlMismatchError: ("version_mismatch", "checksum_mismatch", "protocol_error"),
    nixlRemoteDisconnectError: ("peer_dead", "stale_incarnation", "unreachable", "link_failed", "closed", "authentication_failed"),
    nixlCancelledError: ("cancelled",),
}
_BY_CODE = {code: kind for kind, codes in _KINDS.items() for code in codes}


def of(error):
    """The NIXL exception for a Fairway one; its __cause__ is the latter."""
    return _BY_CODE.get(error.code, nixlBackendError)(str(error))


def in_nixls_words(call):
    @functools.wraps(call)
    def wrapped(*arguments, **options):
        try:
            return call(*arguments, **options)
        except fairway.Error as error:
            raise of(error) from error

    return wrapped
