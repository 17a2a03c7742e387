package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

const (
	maxSafeInteger    = 1<<53 - 1
	sessionPriority   = 0
	requestPriority   = 100
	maxHeaderNameSize = 128
)

func (c *checker) defaultMemoryID(o object) *abi.DefaultMemoryID {
	v, ok := o.members["defaultMemoryId"]
	if !ok {
		return nil
	}
	const at = "/defaultMemoryId"
	d := &abi.DefaultMemoryID{Priority: abi.DefaultProviderPriority}
	do, ok := c.object(v, at, levelDefaultID)
	if !ok {
		return d
	}
	const remedy = "write \"subject\", or \"header:\" and the name of a request header"
	_, hasFrom := do.members["from"]
	_, hasExport := do.members["export"]
	if !hasFrom && !hasExport {
		c.fault(at+"/from", "`from` is missing; %s, or write `export` and the name of a function that yields the id", remedy)
	}
	if hasFrom && hasExport {
		c.fault(at+"/export", "the id comes either `from` the request or from an `export`; remove one of them")
	}
	if hasExport {
		d.Export = c.export(do)
	}
	if d.From, ok = do.text("from", 0); ok {
		c.providerSource(d.From, at+"/from", remedy)
	}
	if n, ok := do.integer("priority", -maxSafeInteger, maxSafeInteger); ok {
		d.Priority = int(n)
		if n == sessionPriority || n == requestPriority {
			c.fault(at+"/priority", "%d is the priority of a provider of the host; use another, such as %d", n, abi.DefaultProviderPriority)
		}
	}
	return d
}

func (c *checker) providerSource(from, at, remedy string) {
	if from == abi.FromSubject {
		return
	}
	header, ok := strings.CutPrefix(from, abi.FromHeader)
	switch {
	case !ok:
		c.fault(at, "there is no source %s; %s", module.Quote(from), remedy)
	case !isHeaderName(header):
		c.fault(at, "%s is not the name of a header; write one such as \"header:X-Conversation\"", module.Quote(header))
	case isProtocolHeader(header):
		c.fault(at, "%s has a meaning of its own in the protocol; use a header of your own, such as \"header:X-Conversation\"", module.Quote(header))
	}
}

// isHeaderName reports whether s is a token of HTTP.
func isHeaderName(s string) bool {
	if s == "" || len(s) > maxHeaderNameSize {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return true
}

// isProtocolHeader reports whether a header carries credentials, belongs to
// one hop of the connection or is read by the host itself.
func isProtocolHeader(name string) bool {
	name = strings.ToLower(name)
	for _, prefix := range []string{"content-", "carrel-", "proxy-", "sec-", "if-", "accept"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{
		"authorization", "x-api-key", "cookie", "set-cookie", "host", "idempotency-key", "connection", "keep-alive",
		"te", "trailer", "transfer-encoding", "upgrade", "expect", "origin", "last-event-id", "prefer",
		"traceparent", "tracestate", "x-request-id", "forwarded", "x-forwarded-for", "x-forwarded-host",
		"x-forwarded-proto", "x-real-ip",
	}, name)
}

// leak refuses a manifest with methods that leak (memory.Leaks), each with its
// place.
func leak(op string, m abi.Manifest) error {
	leaks := memory.Leaks(m)
	if len(leaks) == 0 {
		return nil
	}
	var faults []carrel.Fault
	for i, l := range leaks {
		if i == MaxFaults {
			faults = append(faults, carrel.Fault{Message: fmt.Sprintf("there are %d more such methods", len(leaks)-i)})
			break
		}
		s := m.Services[l.Service]
		faults = append(faults, carrel.Fault{
			Pointer: fmt.Sprintf("/services/%d/methods/%d", l.Service, l.Method),
			Message: fmt.Sprintf("%s.%s is application-scoped and has no required memory id param; %s",
				s.Name, s.Methods[l.Method].Name, memory.LeakRemedy),
		})
	}
	return &carrel.Error{
		Op: op, Code: abi.DefaultIDLeak, Faults: faults,
		Msg: "each call without a memory id would start a history that nobody can name again and nothing ends; " + memory.LeakRemedy,
	}
}
