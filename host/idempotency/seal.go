package idempotency

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/carrelhost/carrel"
)

// Labels keep HMACs and keys of different purposes apart. They must never
// change: answers in the store depend on them.
const (
	labelIdentity    = "carrel idempotency identity 1"
	labelContent     = "carrel idempotency content 1"
	labelFingerprint = "carrel idempotency fingerprint 1"
	labelKey         = "carrel idempotency key 1"
)

// Call is what a client says of a call that it may repeat.
type Call struct {
	Key string // the idempotency key, which makes two calls the same

	// With the key, the identity: what belongs to others is another call.
	Caller  carrel.Caller
	Address carrel.Address // as called: with the version, if one is named

	// The rest must be the same each time.
	Session carrel.SessionID
	Args    map[string]any // numbers as json.Number, which count as they are written
}

// identity names a call in the store.
func (c Call) identity(secret [32]byte) [32]byte {
	version := ""
	switch {
	case c.Address.Version.N != 0:
		version = strconv.Itoa(c.Address.Version.N)
	case !c.Address.Version.IsActive():
		version = c.Address.Version.Digest.String()
	}
	return sum(secret, labelIdentity, []byte(c.Caller.Tenant), []byte(c.Caller.Key), []byte(c.Caller.Subject),
		[]byte(c.Address.String()), []byte(version), []byte(c.Key))
}

// content is what else the call says. It is not stored.
func (c Call) content(secret [32]byte) ([32]byte, error) {
	args, err := json.Marshal(c.Args) // with members in order
	if err != nil {
		return [32]byte{}, fmt.Errorf("encode args: %w", err)
	}
	return sum(secret, labelContent, []byte(c.Session), args), nil
}

func sum(secret [32]byte, label string, parts ...[]byte) (out [32]byte) {
	h := hmac.New(sha256.New, secret[:])
	for _, p := range append([][]byte{[]byte(label)}, parts...) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write(p)
	}
	h.Sum(out[:0])
	return out
}

// sealer encrypts the answer of one call. Its key can be derived only by who
// has the host's secret, the call's content and the idempotency key.
func sealer(secret, content [32]byte, key string) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, append(content[:], key...), secret[:], labelKey, 32)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, fmt.Errorf("make cipher: %w", err)
	}
	// It draws its nonces itself, since one that comes twice is fatal.
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("make cipher: %w", err)
	}
	return aead, nil
}
