// Package memory is the policy of chat memory: which history an invocation
// uses, which system message it has, and which of its turns the model is
// sent. It does no I/O; every rule is a function of its arguments.
package memory

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/carrelhost/carrel"
)

// Handle derives a key's opaque name from the host's secret. Equal keys have
// equal handles; nobody without the secret can tell one from random bytes.
// Each part of the key is written with its length, so that no two keys write
// the same bytes.
func Handle(secret [32]byte, k carrel.MemoryKey) carrel.Handle {
	mac := hmac.New(sha256.New, secret[:])
	for _, part := range []string{string(k.Tenant), string(k.Namespace), string(k.Kind), string(k.Owner), string(k.ID)} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		mac.Write(n[:])
		mac.Write([]byte(part))
	}
	var h carrel.Handle
	copy(h[:], mac.Sum(nil))
	return h
}
