package client

import (
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

// Error returns code, the plugin's own code if there is one, detail and every
// fault, one a line. A detail that ends with the first faults is cut short, and
// a remedy that the detail has is not said again with each fault.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Code)
	if p.GuestCode != "" {
		b.WriteString(" (" + p.GuestCode + ")")
	}
	detail, faults := p.Detail, p.Errors
	if len(faults) == 1 && faults[0].Pointer == "" && faults[0].Message != "" && strings.HasSuffix(detail, faults[0].Message) {
		faults = nil // it has no place: the detail says all of it
	}
	detail = withoutFaults(detail, faults)
	if detail != "" {
		b.WriteString(": " + detail)
	}
	remedy := ""
	if i := strings.LastIndex(detail, "; "); i >= 0 {
		remedy = detail[i:]
	}
	for _, f := range faults {
		b.WriteString("\n  ")
		if f.Pointer != "" {
			b.WriteString(f.Pointer + ": ")
		}
		b.WriteString(strings.Replace(f.Message, remedy, "", 1))
	}
	return b.String()
}

// withoutFaults cuts the first of the faults off a detail that ends with it, or
// with a list of the first few.
func withoutFaults(detail string, faults []carrel.Fault) string {
	if len(faults) == 0 || faults[0].Message == "" {
		return detail
	}
	f := faults[0]
	if rest, repeated := strings.CutSuffix(detail, f.Message); repeated {
		rest = strings.TrimRight(rest, ": ")
		rest = strings.TrimRight(strings.TrimSuffix(rest, f.Pointer), ": ")
		rest = strings.TrimSuffix(rest, " at")
		return strings.TrimRight(strings.TrimSuffix(rest, ", the first"), ": ")
	}
	list := ""
	for i, f := range faults {
		if i > 0 {
			list += "; "
		}
		if f.Pointer != "" {
			list += f.Pointer + ": "
		}
		list += f.Message
		if rest, repeated := strings.CutSuffix(detail, list); i > 0 && repeated {
			return strings.TrimRight(rest, ": ")
		}
	}
	return detail
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
