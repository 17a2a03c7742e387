package sandbox

import (
	"context"

	"github.com/carrelhost/carrel/abi"
)

// Host answers the host calls of one guest call. Its methods are called from
// the goroutine of Plugin.Call, one at a time, and may block: the guest gives
// up its place on the CPU meanwhile.
type Host interface {
	// Do performs an operation of the import `call`. op is valid UTF-8 of at
	// most abi.MaxOpBytes, known or not; request is the guest's JSON, of at
	// most abi.MaxRequestBytes and unchecked, the callee's to keep. result is
	// the sandbox's. A refusal is what the guest sees as a negative errno and
	// reads with `last_error`. Do returns when ctx ends.
	Do(ctx context.Context, op abi.Op, request []byte) (result []byte, refused *Refusal)
	// Knows answers the import `feature` for an operation's or feature's name.
	Knows(feature string) bool
}

// Refusal is a host call that was refused. A recoverable refusal never traps.
type Refusal struct {
	Errno   abi.Errno
	Code    string // an abi code's name
	Message string
	Remedy  string // the manifest line to add, the grant to ask for; may be empty
}
