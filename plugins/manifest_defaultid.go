package plugins

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
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
	if _, guest := do.members["export"]; !guest {
		const remedy = "write \"subject\", or \"header:\" and the name of a request header"
		if d.From, ok = do.requiredText("from", 0, remedy); ok {
			c.providerSource(d.From, at+"/from", remedy)
		}
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
		c.fault(at, "there is no source %s; %s", quote(from), remedy)
	case !isHeaderName(header):
		c.fault(at, "%s is not the name of a header; write one such as \"header:X-Conversation\"", quote(header))
	case isProtocolHeader(header):
		c.fault(at, "%s has a meaning of its own in the protocol; use a header of your own, such as \"header:X-Conversation\"", quote(header))
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

// leak reports the methods that would leave behind one history per request
// for ever: application scope, and nothing but the request to take a default
// memory id from.
func leak(op string, m abi.Manifest) error {
	if m.AllowDefaultIDLeak || m.DefaultMemoryID != nil && m.DefaultMemoryID.Priority < sessionPriority {
		return nil
	}
	var faults []carrel.Fault
	var names []string
	more := 0
	for i, s := range m.Services {
		if s.Scope != abi.ScopeApplication {
			continue
		}
		for j, method := range s.Methods {
			if method.MemoryIDRequired {
				continue
			}
			if len(faults) == maxFaults {
				more++
				continue
			}
			names = append(names, s.Name+"."+method.Name)
			faults = append(faults, carrel.Fault{
				Pointer: fmt.Sprintf("/services/%d/methods/%d", i, j),
				Message: fmt.Sprintf("%s.%s has application scope and no required memory id: every call without one would leave a history that nothing deletes. %s",
					s.Name, method.Name, leakRemedy),
			})
		}
	}
	if len(faults) == 0 {
		return nil
	}
	if more > 0 {
		faults = append(faults, carrel.Fault{Message: fmt.Sprintf("there are %d more such methods", more)})
	}
	return &carrel.Error{Op: op, Code: abi.DefaultIDLeak, Faults: faults, Msg: fmt.Sprintf(
		"application-scoped methods without a required memory id would leak one history per call: %s. %s", orList(names), leakRemedy)}
}

const leakRemedy = `Require a memory id: name a param in "memoryId" and list it in params.required; ` +
	`or declare a provider: "defaultMemoryId": {"from": "header:X-Conversation"} or {"from": "subject"} with a priority below 0; ` +
	`or accept it: "allowDefaultIdLeak": true`
