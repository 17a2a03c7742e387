package carrel

import "github.com/carrelhost/carrel/abi"

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
