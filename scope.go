package carrel

import (
	"regexp"

	"github.com/carrelhost/carrel/abi"
)

// Scope is a lifetime that chat memory can belong to.
type Scope string

// The scopes, from the shortest-lived.
const (
	ScopeRequest     Scope = abi.ScopeRequest
	ScopeSession     Scope = abi.ScopeSession
	ScopeApplication Scope = abi.ScopeApplication
)

// ScopeID names one scope instance: one lifetime of one scope.
type ScopeID string

// RequestID names one request, and is the id of its request scope.
type RequestID string

// SessionID names one session, and is the id of its session scope. It is
// "ses_" and a random UUID, and no secret: only its owner may use it.
type SessionID string

// ParseSessionID is the only way an outside string becomes a SessionID. Its
// error is not_found: a malformed id names nothing.
func ParseSessionID(s string) (SessionID, error) {
	if !sessionID.MatchString(s) {
		return "", FailNotFound("carrel.ParseSessionID")
	}
	return SessionID(s), nil
}

var sessionID = regexp.MustCompile(`^ses_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
