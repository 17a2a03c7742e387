package abi

import "fmt"

// Code classifies a failure. Values cross the guest boundary and are stored:
// append only, never renumber. The text form (String) is what HTTP bodies,
// WebSocket frames and command output carry.
type Code uint32

// Every way in which a host refuses or fails. Each edge (HTTP status, exit
// code, close code) has one table that is total over these.
const (
	OK Code = iota
	Internal
	MalformedJSON
	BadRequest
	Unauthenticated
	Forbidden
	NotFound
	MethodNotAllowed
	UnsupportedMediaType
	WrongHost
	TooLarge
	InvalidParams
	InvalidMemoryID
	InvalidManifest
	InvalidModule
	UnknownImport
	LimitExceeded
	DefaultIDLeak
	ContextTooLarge
	GuardRefused
	IdempotencyMismatch
	IdempotencyInterrupted
	GuestFailed
	GuestTrap
	FuelExhausted
	MemoryBusy
	SessionBusy
	ScopeClosed
	NoSession
	HistoryConflict
	SessionClosed
	ModelFailed
	Timeout
	Canceled
	BudgetExceeded
	QuotaExceeded
	RateLimited
	Draining
	Overloaded
	StorageFull

	numCodes
)

var codeNames = [numCodes]string{
	OK:                     "ok",
	Internal:               "internal",
	MalformedJSON:          "malformed_json",
	BadRequest:             "bad_request",
	Unauthenticated:        "unauthenticated",
	Forbidden:              "forbidden",
	NotFound:               "not_found",
	MethodNotAllowed:       "method_not_allowed",
	UnsupportedMediaType:   "unsupported_media_type",
	WrongHost:              "wrong_host",
	TooLarge:               "too_large",
	InvalidParams:          "invalid_params",
	InvalidMemoryID:        "invalid_memory_id",
	InvalidManifest:        "invalid_manifest",
	InvalidModule:          "invalid_module",
	UnknownImport:          "unknown_import",
	LimitExceeded:          "limit_exceeded",
	DefaultIDLeak:          "default_id_leak",
	ContextTooLarge:        "context_too_large",
	GuardRefused:           "guard_refused",
	IdempotencyMismatch:    "idempotency_mismatch",
	IdempotencyInterrupted: "idempotency_interrupted",
	GuestFailed:            "guest_failed",
	GuestTrap:              "guest_trap",
	FuelExhausted:          "fuel_exhausted",
	MemoryBusy:             "memory_busy",
	SessionBusy:            "session_busy",
	ScopeClosed:            "scope_closed",
	NoSession:              "no_session",
	HistoryConflict:        "history_conflict",
	SessionClosed:          "session_closed",
	ModelFailed:            "model_failed",
	Timeout:                "timeout",
	Canceled:               "canceled",
	BudgetExceeded:         "budget_exceeded",
	QuotaExceeded:          "quota_exceeded",
	RateLimited:            "rate_limited",
	Draining:               "draining",
	Overloaded:             "overloaded",
	StorageFull:            "storage_full",
}

// Codes returns every failure code, OK not among them. The caller owns the
// result; edges range over it to prove their tables total.
func Codes() []Code {
	out := make([]Code, 0, numCodes-1)
	for c := OK + 1; c < numCodes; c++ {
		out = append(out, c)
	}
	return out
}

// String returns the code's wire name, such as "not_found".
func (c Code) String() string {
	if c < numCodes {
		return codeNames[c]
	}
	return fmt.Sprintf("code(%d)", uint32(c))
}

// ParseCode is the inverse of String. ok is false for a name that this
// version does not know; a client then treats the failure as Internal.
func ParseCode(name string) (c Code, ok bool) {
	for i, n := range codeNames {
		if n == name {
			return Code(i), true
		}
	}
	return Internal, false
}

// Retryable reports whether the same request may succeed when it is sent
// again without change: the failure stored nothing and its cause may pass.
func (c Code) Retryable() bool {
	switch c {
	case MemoryBusy, SessionBusy, ModelFailed, Timeout, QuotaExceeded, RateLimited,
		Draining, Overloaded, StorageFull:
		return true
	default:
		return false
	}
}
