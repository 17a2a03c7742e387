package client

import (
	"fmt"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// ProblemType is the media type of errors (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is an error as the host sends it: RFC 9457, with members of ours.
type Problem struct {
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Code      string         `json:"code"`
	Detail    string         `json:"detail,omitempty"`
	RequestID string         `json:"requestId"`
	Retryable bool           `json:"retryable"`
	Limit     string         `json:"limit,omitempty"`     // the limit that was hit
	GuestCode string         `json:"guestCode,omitempty"` // guest_failed: the plugin's own code
	Errors    []carrel.Fault `json:"errors,omitempty"`
}

// Error returns code, detail and every fault, one a line.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Code)
	if p.Detail != "" {
		b.WriteString(": " + p.Detail)
	}
	for _, f := range p.Errors {
		fmt.Fprintf(&b, "\n  %s: %s", f.Pointer, f.Message)
	}
	return b.String()
}

// Is makes errors.Is(err, client.Code(abi.NotFound)) work.
func (p *Problem) Is(target error) bool {
	c, ok := target.(Code)
	return ok && p.Code == abi.Code(c).String()
}

// Code is an error that equals every Problem with its code.
type Code abi.Code

// Error returns the code's name.
func (c Code) Error() string { return abi.Code(c).String() }
