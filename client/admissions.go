package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// The states in which an admission ends. Before that its state is the name of
// a stage: linting, queued, compiling, initialising or warming.
const (
	AdmissionActive  = "active"  // a version, and the plugin's active one
	AdmissionStored  = "stored"  // a version, and not the active one
	AdmissionChecked = "checked" // a dry run that found nothing to refuse
	AdmissionRefused = "refused"
)

// Admission is how far the latest upload of a module is.
type Admission struct {
	Digest  string           `json:"digest"`
	State   string           `json:"state"`
	Since   time.Time        `json:"since"`             // of the state; when the version came, if more is not known
	Stages  []AdmissionStage `json:"stages"`            // those that are over, in their order
	Plugin  string           `json:"plugin,omitempty"`  // once the manifest is known
	N       int              `json:"n,omitempty"`       // the version's number, once it is stored
	Problem *Problem         `json:"problem,omitempty"` // why it was refused

	// Quarantined says why the module does not run; nil if nothing keeps it.
	Quarantined *Quarantine `json:"quarantined,omitempty"`
}

// AdmissionStage is a stage that is over.
type AdmissionStage struct {
	Stage string `json:"stage"`
	Took  string `json:"took"` // such as "1.2s"
}

// Ended reports whether the admission is over.
func (a Admission) Ended() bool {
	switch a.State {
	case AdmissionActive, AdmissionStored, AdmissionChecked, AdmissionRefused:
		return true
	default:
		return false
	}
}

// UploadAsync sends a module and does not wait until it is admitted: see
// WaitAdmission. The host remembers an admission as long as it runs without a
// restart, and for an hour after its end.
func (c *Client) UploadAsync(ctx context.Context, module []byte, o UploadOptions) (Admission, error) {
	var out Admission
	err := c.do(ctx, http.MethodPost, withQuery("/api/v1/plugins", o.query()),
		http.Header{"Content-Type": {"application/wasm"}, "Prefer": {"respond-async"}}, module, &out)
	return out, err
}

// Admission tells how far the module with a digest is.
func (c *Client) Admission(ctx context.Context, digest string) (Admission, error) {
	var out Admission
	err := c.do(ctx, http.MethodGet, "/api/v1/versions/"+url.PathEscape(digest), nil, nil, &out)
	return out, err
}

// Between two questions of WaitAdmission.
const (
	firstPause = 20 * time.Millisecond
	mostPause  = 500 * time.Millisecond
)

// mostSilence is how long WaitAdmission goes on asking a host that does not
// answer: many restart within it, and the admission may have gone through.
const mostSilence = 10 * time.Second

// WaitAdmission asks again and again until an admission has ended, or ctx has.
// What was refused is an error, the problem, with the state AdmissionRefused;
// any other error says nothing of the admission, whose last known state is
// returned with it. A question that fails for the moment is asked again, for up
// to ten seconds. seen, if not nil, is given every answer.
func (c *Client) WaitAdmission(ctx context.Context, digest string, seen func(Admission)) (Admission, error) {
	var last Admission
	var silent time.Time // since when; zero: it answers
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		a, err := c.Admission(ctx, digest)
		switch {
		case err == nil:
			silent, last = time.Time{}, a
			if seen != nil {
				seen(a)
			}
			if a.State == AdmissionRefused && a.Problem != nil {
				return a, a.Problem
			}
			if a.Ended() {
				return a, nil
			}
		case ctx.Err() != nil || !passes(err):
			return last, err
		case silent.IsZero():
			silent = time.Now()
		case time.Since(silent) >= mostSilence:
			return last, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return last, ctx.Err() //nolint:wrapcheck // the caller's own
		}
	}
}

// passes reports whether the same question may be answered a little later: not
// if the host itself said no for good.
func passes(err error) bool {
	p, answered := errors.AsType[*Problem](err)
	return !answered || p.Retryable
}
