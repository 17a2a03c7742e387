package carrel

import (
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/carrelhost/carrel/abi"
)

// KeyRole is what an API key may do in its tenant.
type KeyRole string

// The roles of API keys.
const (
	RoleOwner     KeyRole = "owner"     // all of the tenant
	RolePublisher KeyRole = "publisher" // plugins and versions
	RoleCaller    KeyRole = "caller"    // invoke, and see what it touched itself
	RoleViewer    KeyRole = "viewer"    // read
)

// ParseKeyRole is the only way an outside string becomes a KeyRole. Its error
// has code bad_request.
func ParseKeyRole(s string) (KeyRole, error) {
	r := KeyRole(s)
	if !slices.Contains([]KeyRole{RoleOwner, RolePublisher, RoleCaller, RoleViewer}, r) {
		return "", Fail("carrel.ParseKeyRole", abi.BadRequest,
			fmt.Sprintf("%q is not a role; roles are owner, publisher, caller, viewer", s))
	}
	return r, nil
}

// KeyID names an API key. It is no secret.
type KeyID string

// Subject is an end user of a tenant's application: 1 to 256 bytes of valid
// UTF-8 without control characters, or empty for none.
type Subject string

// MaxSubjectBytes bounds a Subject.
const MaxSubjectBytes = 256

// ParseSubject is the only way an outside string becomes a Subject. Its error
// has code bad_request.
func ParseSubject(s string) (Subject, error) {
	ok := s != "" && len(s) <= MaxSubjectBytes && utf8.ValidString(s)
	for _, r := range s {
		ok = ok && !unicode.IsControl(r)
	}
	if !ok {
		return "", Fail("carrel.ParseSubject", abi.BadRequest, fmt.Sprintf(
			"a subject is 1 to %d bytes of UTF-8 without control characters", MaxSubjectBytes))
	}
	return Subject(s), nil
}

// Caller is who makes a request: an API key of a tenant, on behalf of one of
// the tenant's end users if Subject is set.
type Caller struct {
	Tenant  TenantID
	Key     KeyID
	Role    KeyRole
	Subject Subject
}

// MayInvoke reports whether the caller may call service methods.
func (c Caller) MayInvoke() bool { return c.Role == RoleOwner || c.Role == RoleCaller }

// MayPublish reports whether the caller may change plugins and versions.
func (c Caller) MayPublish() bool { return c.Role == RoleOwner || c.Role == RolePublisher }

// SeesAllMemories reports whether the caller may read every history of its
// tenant. A caller without this sees those that its own (key, subject)
// touched; a publisher sees none.
func (c Caller) SeesAllMemories() bool { return c.Role == RoleOwner || c.Role == RoleViewer }
