package carrel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/carrelhost/carrel/abi"
)

// TenantID names a tenant: ^[a-z][a-z0-9-]{0,62}$.
type TenantID string

// PluginName names a plugin inside its tenant: ^[a-z][a-z0-9-]{0,62}$.
type PluginName string

// ServiceName is a service's fully qualified name: dotted identifiers, at most
// abi.MaxServiceNameBytes.
type ServiceName string

// MethodName names a method of a service: ^[A-Za-z_][A-Za-z0-9_]{0,62}$.
type MethodName string

// Digest names a plugin version: the SHA-256 of the stored module's bytes.
type Digest [sha256.Size]byte

// maxNameBytes bounds what a name without dots is made of.
const maxNameBytes = 63

// isSlug reports whether s matches [a-z][a-z0-9-]{0,62}.
func isSlug(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isSmall(c) && (i == 0 || !isDigit(c) && c != '-') {
			return false
		}
	}
	return s != "" && len(s) <= maxNameBytes
}

// isIdentifier reports whether s matches [A-Za-z_][A-Za-z0-9_]*.
func isIdentifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isSmall(c) && (c < 'A' || c > 'Z') && c != '_' && (i == 0 || !isDigit(c)) {
			return false
		}
	}
	return s != ""
}

// isDotted reports whether s is identifiers joined by dots.
func isDotted(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if !isIdentifier(part) {
			return false
		}
	}
	return true
}

// isDigest reports whether s matches [0-9a-f]{64}.
func isDigest(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isDigit(c) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == hex.EncodedLen(sha256.Size)
}

func isSmall(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// ParseTenantID is the only way an outside string becomes a TenantID. Its
// error has code bad_request.
func ParseTenantID(s string) (TenantID, error) {
	if !isSlug(s) {
		return "", Fail("carrel.ParseTenantID", abi.BadRequest,
			"a tenant's name is a small letter, then up to 62 small letters, digits or hyphens")
	}
	return TenantID(s), nil
}

// ParsePluginName is the only way an outside string becomes a PluginName. Its
// error has code bad_request.
func ParsePluginName(s string) (PluginName, error) {
	if !isSlug(s) {
		return "", Fail("carrel.ParsePluginName", abi.BadRequest,
			"a plugin's name is a small letter, then up to 62 small letters, digits or hyphens")
	}
	return PluginName(s), nil
}

// ParseServiceName is the only way an outside string becomes a ServiceName.
// Its error has code bad_request.
func ParseServiceName(s string) (ServiceName, error) {
	if len(s) > abi.MaxServiceNameBytes || !isDotted(s) {
		return "", Fail("carrel.ParseServiceName", abi.BadRequest, fmt.Sprintf(
			"a service's name is identifiers joined by dots, at most %d bytes, such as com.acme.MyChat", abi.MaxServiceNameBytes))
	}
	return ServiceName(s), nil
}

// ParseMethodName is the only way an outside string becomes a MethodName. Its
// error has code bad_request.
func ParseMethodName(s string) (MethodName, error) {
	if len(s) > maxNameBytes || !isIdentifier(s) {
		return "", Fail("carrel.ParseMethodName", abi.BadRequest,
			"a method's name is a letter or underscore, then up to 62 letters, digits or underscores")
	}
	return MethodName(s), nil
}

// DigestOf returns the digest of a module's stored bytes.
func DigestOf(module []byte) Digest { return sha256.Sum256(module) }

// ParseDigest is the only way an outside string becomes a Digest: 64 small
// hexadecimal digits. All zeros are no module's digest: here they mean "none".
// Its error has code bad_request.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if !isDigest(s) {
		return d, Fail("carrel.ParseDigest", abi.BadRequest, "a digest is 64 small hexadecimal digits")
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("decode digest: %w", err)
	}
	if d == (Digest{}) {
		return d, Fail("carrel.ParseDigest", abi.BadRequest, "64 zeros are the digest of nothing")
	}
	return d, nil
}

// String returns the digest as 64 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler, for logs: JSON would have the
// bytes as an array of numbers, in which nobody recognises a digest. There is
// no way back but ParseDigest.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// VersionRef picks a version of a plugin: by digest, by its number n (1 is
// the first), or, as the zero value, the active one.
type VersionRef struct {
	Digest Digest
	N      int
}

// IsActive reports whether the reference is to the active version.
func (r VersionRef) IsActive() bool { return r == VersionRef{} }

// ParseVersionRef reads a digest or a version number. Its error has code
// bad_request.
func ParseVersionRef(s string) (VersionRef, error) {
	if isDigest(s) {
		d, err := ParseDigest(s)
		return VersionRef{Digest: d}, err
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || strconv.Itoa(n) != s {
		return VersionRef{}, Fail("carrel.ParseVersionRef", abi.BadRequest,
			"a version is its digest (64 hexadecimal digits) or its number, from 1")
	}
	return VersionRef{N: n}, nil
}

// Address names a service method: plugin[@version]/Service.method.
type Address struct {
	Plugin  PluginName
	Version VersionRef
	Service ServiceName
	Method  MethodName
}

// String returns the address without its version, as histories and messages
// show it.
func (a Address) String() string {
	return string(a.Plugin) + "/" + string(a.Service) + "." + string(a.Method)
}

// ParsePluginRef reads plugin or plugin@version. Its error has code
// bad_request.
func ParsePluginRef(s string) (PluginName, VersionRef, error) {
	name, version, has := strings.Cut(s, "@")
	p, err := ParsePluginName(name)
	if err != nil || !has {
		return p, VersionRef{}, err
	}
	ref, err := ParseVersionRef(version)
	return p, ref, err
}

// ParseAddress reads plugin[@version]/Service.method; the last dot parts
// service from method. Its error has code bad_request.
func ParseAddress(s string) (Address, error) {
	plugin, rest, ok := strings.Cut(s, "/")
	dot := strings.LastIndexByte(rest, '.')
	if !ok || dot < 0 {
		return Address{}, Fail("carrel.ParseAddress", abi.BadRequest,
			"an address is plugin/Service.method, such as nice-and-mean/com.acme.MyChat.chat")
	}
	var a Address
	var err error
	if a.Plugin, a.Version, err = ParsePluginRef(plugin); err != nil {
		return Address{}, err
	}
	if a.Service, err = ParseServiceName(rest[:dot]); err != nil {
		return Address{}, err
	}
	if a.Method, err = ParseMethodName(rest[dot+1:]); err != nil {
		return Address{}, err
	}
	return a, nil
}

// CallPattern names the methods that a plugin may call in another one:
// plugin/Service.method, plugin/Service.* or plugin/*.
type CallPattern struct {
	Plugin  PluginName
	Service ServiceName // "" = every service
	Method  MethodName  // "" = every method
}

// ParseCallPattern is the only way an outside string becomes a CallPattern.
// Its error has code bad_request.
func ParseCallPattern(s string) (CallPattern, error) {
	plugin, rest, ok := strings.Cut(s, "/")
	p, err := ParsePluginName(plugin)
	if !ok || err != nil {
		return CallPattern{}, Fail("carrel.ParseCallPattern", abi.BadRequest,
			"a pattern of calls is plugin/Service.method, plugin/Service.* or plugin/*")
	}
	if rest == "*" {
		return CallPattern{Plugin: p}, nil
	}
	if service, all := strings.CutSuffix(rest, ".*"); all {
		name, err := ParseServiceName(service)
		return CallPattern{Plugin: p, Service: name}, err
	}
	a, err := ParseAddress(s)
	return CallPattern{a.Plugin, a.Service, a.Method}, err
}

// Matches reports whether the pattern covers a method.
func (p CallPattern) Matches(a Address) bool {
	return p.Plugin == a.Plugin && (p.Service == "" || p.Service == a.Service) && (p.Method == "" || p.Method == a.Method)
}
