package carrel

import (
	"encoding/base64"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carrelhost/carrel/abi"
)

// Namespace is the space of memory ids that one plugin, or several that the
// tenant's owner put together, share. A plugin's own namespace is its name;
// a shared one begins with "shared:".
type Namespace string

// KeyKind says by which provider a memory id came. It keeps ids apart that
// happen to be spelled alike.
type KeyKind string

// The kinds of memory keys.
const (
	KindExplicit KeyKind = "explicit" // a memory id parameter
	KindRequest  KeyKind = "request"  // the request's default id
	KindSession  KeyKind = "session"  // the session's default id
	KindPlugin   KeyKind = "plugin"   // the plugin's own default id provider
)

// Owner parts the header provider's ids by who sent the header: the caller's
// subject or API key id. It is empty for every other key.
type Owner string

// MemoryID is the caller-visible name of a history: 1 to abi.MaxMemoryIDBytes
// bytes of valid UTF-8 without control characters.
type MemoryID string

// MemoryKey names one chat history. It is comparable, so it can key a map.
// Tenant, Namespace, Kind and Owner are the host's to fill in, never a
// client's, a guest's or a model's.
type MemoryKey struct {
	Tenant    TenantID
	Namespace Namespace
	Kind      KeyKind
	Owner     Owner
	ID        MemoryID
}

// ParseMemoryID is the only way an outside string becomes a MemoryID. Its
// error has code invalid_memory_id.
func ParseMemoryID(s string) (MemoryID, error) {
	return parseID(s, abi.MaxMemoryIDBytes)
}

// ParseDefaultID checks what a default memory id provider yields: like a
// MemoryID, but at most abi.MaxDefaultIDBytes bytes, for a suffix follows. Its
// error has code invalid_memory_id.
func ParseDefaultID(s string) (MemoryID, error) {
	return parseID(s, abi.MaxDefaultIDBytes)
}

func parseID(s string, most int) (MemoryID, error) {
	fault := ""
	switch {
	case s == "":
		fault = "it is empty"
	case len(s) > most:
		fault = fmt.Sprintf("it has %d bytes, at most %d are allowed", len(s), most)
	case !utf8.ValidString(s):
		fault = "it is not valid UTF-8"
	default:
		for _, r := range s {
			if unicode.IsControl(r) {
				fault = fmt.Sprintf("it has the control character U+%04X", r)
				break
			}
		}
	}
	if fault != "" {
		return "", Fail("carrel.ParseMemoryID", abi.InvalidMemoryID, "memory id: "+fault)
	}
	return MemoryID(s), nil
}

// Handle is the opaque, URL-safe name of a memory key that clients see: an
// HMAC of the key under a host secret, so that it reveals nothing and cannot
// be made by guessing.
type Handle [16]byte

// String returns the handle as 22 URL-safe characters.
func (h Handle) String() string { return base64.RawURLEncoding.EncodeToString(h[:]) }

// ParseHandle is the only way an outside string becomes a Handle. Its error
// is not_found: a malformed handle names nothing.
func ParseHandle(s string) (Handle, error) {
	var h Handle
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != len(h) {
		return h, FailNotFound("carrel.ParseHandle")
	}
	copy(h[:], b)
	return h, nil
}

// EvictionReason says why a history ended.
type EvictionReason string

// The reasons of evictions.
const (
	ReasonScopeClosed   EvictionReason = "scope_closed"
	ReasonExpired       EvictionReason = "expired"
	ReasonDeleted       EvictionReason = "deleted"
	ReasonErased        EvictionReason = "erased"
	ReasonPluginRemoved EvictionReason = "plugin_removed"
	ReasonTenantRemoved EvictionReason = "tenant_removed"
)

// Eviction reports the end of one history. It holds no content.
type Eviction struct {
	Handle   Handle
	Plugin   PluginName // the plugin whose invocation touched the history last
	Key      MemoryKey
	Reason   EvictionReason
	Scope    Scope   // of the scope instance that closed; "" if none did
	Instance ScopeID // likewise
	Messages int64   // the system message counts
	Bytes    int64   // of contents
	At       time.Time
}
