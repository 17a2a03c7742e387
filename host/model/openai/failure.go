package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// What is wrong with an answer, for the operator's log.
var (
	errNoChoice = errors.New("it holds no choice")
	errCut      = errors.New("the stream ended before the answer did")
)

// maxWait bounds what a Retry-After is believed.
const maxWait = 24 * time.Hour

// failure classifies an error of a call whose context lives: what is not yet
// classified is a broken connection.
func failure(err error) error {
	if known, ok := errors.AsType[*carrel.Error](err); ok {
		return known
	}
	return &carrel.Error{
		Op: op, Code: abi.ModelFailed, Err: flat(err),
		Msg: "the connection to the model server broke before the whole answer was there; a retry may succeed",
	}
}

// flat keeps only the text of an error of net or net/http: their timeouts
// claim to be context.DeadlineExceeded, which a caller would take for the end
// of its own context.
func flat(err error) error { return errors.New(err.Error()) }

// unreachable is the failure of a request that got no answer at all.
func unreachable(cause error) *carrel.Error {
	return &carrel.Error{
		Op: op, Code: abi.ModelFailed, Err: flat(cause),
		Msg: "the model server cannot be reached; a retry may succeed later",
	}
}

// late is the failure of an answer whose headers did not come in time.
func (p *Provider) late() *carrel.Error {
	return carrel.FailLimit(op, abi.ModelFailed, "timeout", fmt.Sprintf(
		"the model server did not begin to answer within %v; a retry may succeed, "+
			"and the operator can raise `limits.timeout`", p.headerTimeout))
}

// tooLarge is the failure of an answer beyond the limit.
func (p *Provider) tooLarge() *carrel.Error {
	return carrel.FailLimit(op, abi.ModelFailed, "answerBytes", fmt.Sprintf(
		"the model's answer is larger than %d bytes; the operator can raise `limits.answerBytes`", p.maxAnswer))
}

// misunderstood is the failure of an answer that makes no sense.
func misunderstood(cause error) *carrel.Error {
	return &carrel.Error{
		Op: op, Code: abi.ModelFailed, Err: cause,
		Msg: "the model server's answer was incomplete or not understood; a retry may succeed",
	}
}

// reported is the failure of an answer that turned into an error under way.
func reported(upstream json.RawMessage) *carrel.Error {
	return &carrel.Error{
		Op: op, Code: abi.ModelFailed, Err: fmt.Errorf("error in the answer%s", names(upstream)),
		Msg: "the model server reported an error instead of an answer; a retry may succeed",
	}
}

// refused is the failure of an answer with a status that is not success.
func (p *Provider) refused(res *http.Response) *carrel.Error {
	// What could not be read is not missed: the status is the failure.
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBodyBytes))
	var object struct {
		Error json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(body, &object)
	out := &carrel.Error{
		Op: op, Code: abi.ModelFailed,
		Err:  fmt.Errorf("POST %s: status %d%s", p.endpoint, res.StatusCode, names(object.Error)),
		Wait: p.retryAfter(res.Header.Get("Retry-After")),
	}
	out.Msg = fmt.Sprintf("the model server %s (status %d); %s", because(res.StatusCode)...)
	if out.Wait > 0 {
		out.Msg += fmt.Sprintf(" in %v", out.Wait)
	}
	return out
}

// because returns what a status says, the status, and what to do, in a form
// that " in 20s" can follow where a retry makes sense.
func because(status int) []any {
	what, then := "gave an unexpected answer", "the operator should check its provider"
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		what, then = "does not accept this host's key", "the operator must check its provider"
	case status == http.StatusNotFound:
		what, then = "does not know the model or the address", "the operator must check its provider and the model's name"
	case status == http.StatusTooManyRequests:
		what, then = "is asked too often", "try again"
	case status == http.StatusRequestTimeout, status >= 500:
		what, then = "failed", "try again"
	case status >= 400:
		what, then = "refused the request", "the same request will be refused again"
	case status >= 300:
		what, then = "redirects, which is not followed", "the operator must set the final address"
	}
	return []any{what, status, then}
}

// retryAfter reads both forms of the header. Nonsense and the past are 0.
func (p *Provider) retryAfter(header string) time.Duration {
	if seconds, err := strconv.ParseInt(header, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 0), int64(maxWait/time.Second))) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(p.now()), 0), maxWait).Round(time.Second)
}

// names returns the machine-readable names in an upstream error object for the
// operator's log. Its message is left out on purpose: servers repeat keys and
// pieces of the conversation in it, and logs outlive a scope.
func names(upstream json.RawMessage) string {
	var object struct {
		Type  any `json:"type"`
		Code  any `json:"code"`
		Param any `json:"param"`
	}
	if json.Unmarshal(upstream, &object) != nil {
		return ""
	}
	var b strings.Builder
	for _, n := range []struct {
		name  string
		value any
	}{{"type", object.Type}, {"code", object.Code}, {"param", object.Param}} {
		switch v := n.value.(type) {
		case string:
			if isName(v) {
				fmt.Fprintf(&b, ", %s %s", n.name, v)
			}
		case float64:
			if status := int(v); status >= 100 && status < 600 {
				fmt.Fprintf(&b, ", %s %d", n.name, status)
			}
		}
	}
	return b.String()
}

// isName tells an identifier such as invalid_request_error from free text and
// from keys, which have digits.
func isName(s string) bool {
	const most = 40
	for _, r := range s {
		if (r < 'a' || r > 'z') && r != '_' && r != '.' {
			return false
		}
	}
	return s != "" && len(s) <= most
}
