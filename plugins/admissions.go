package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// State is where the admission of a module is: a sandbox.Stage as long as it
// goes on, and one of the states below after its end.
type State string

// The states in which an admission ends.
const (
	StateActive  State = "active"  // a version, and the plugin's active one
	StateStored  State = "stored"  // a version, and not the active one
	StateChecked State = "checked" // a dry run that found nothing to refuse
	StateRefused State = "refused"
)

// Ended reports whether an admission in this state is over.
func (s State) Ended() bool {
	return s == StateActive || s == StateStored || s == StateChecked || s == StateRefused
}

// Progress is how far the latest admission of a module is.
type Progress struct {
	Digest carrel.Digest
	State  State
	Since  time.Time         // of that state
	Stages []StageTime       // those that are over, in their order
	Plugin carrel.PluginName // "" until the manifest is known
	N      int               // the version's number; 0 until it is stored

	// Refused says why, without its cause and cut to what may be kept, and
	// Request which upload was refused so, the first if several were. Both are
	// zero in every other state.
	Refused *carrel.Error
	Request string
}

// StageTime is how long an admission was in a stage.
type StageTime struct {
	Stage sandbox.Stage
	Took  time.Duration
}

// AdmissionLimits bounds the admissions of a catalog. Zero fields have
// defaults.
type AdmissionLimits struct {
	PerTenant int           // that run or are remembered, of one tenant; 0 = 200
	Total     int           // of all tenants; 0 = 2,000
	Timeout   time.Duration // of one, with the time that it waits; 0 = 2 min
}

const (
	defaultAdmissions       = 200
	defaultAdmissionsTotal  = 2000
	defaultAdmissionTimeout = 2 * time.Minute

	// admissionKept is how long the end of an admission is remembered.
	admissionKept = time.Hour
)

func (l AdmissionLimits) withDefaults() AdmissionLimits {
	return AdmissionLimits{
		PerTenant: cmp.Or(l.PerTenant, defaultAdmissions), Total: cmp.Or(l.Total, defaultAdmissionsTotal),
		Timeout: cmp.Or(l.Timeout, defaultAdmissionTimeout),
	}
}

// candidate names a module across tenants.
type candidate struct {
	tenant carrel.TenantID
	digest carrel.Digest
}

// admission is the way of one module through its stages. It is guarded by
// admissions.mu.
type admission struct {
	Progress
	at     candidate
	users  int     // submissions of it that have not ended
	flight *flight // nil once there are no users
	came   outcome // what tells the most of those that have ended
}

// outcome is what a submission came to, if that is no version.
type outcome struct {
	tells   int // one of the constants below; 0: none has ended
	plugin  carrel.PluginName
	refused *carrel.Error // nil: a dry run that found nothing to refuse
	request string
}

// What the submissions of one module come to tells the more the later it is in
// this list.
const (
	tellsThatOneLeft = iota + 1 // which says nothing about the module
	tellsOfADryRun
	tellsOfAnUpload
)

// admissions remembers what is being admitted and, for a while, what became of
// it. Nothing of it is durable. It is safe for concurrent use.
type admissions struct {
	limits AdmissionLimits
	now    func() time.Time

	running sync.WaitGroup // submissions that have not ended; added to under mu

	mu       sync.Mutex // guards what follows
	closed   bool       // nothing new is taken in
	cut      bool       // what runs is to end
	known    map[candidate]*admission
	ended    []*admission // that nobody uses, the first to end first
	ofTenant map[carrel.TenantID]int
	cuts     map[*Submission]context.CancelCauseFunc // of those that are waited for
}

func newAdmissions(l AdmissionLimits, now func() time.Time) *admissions {
	return &admissions{
		limits: l.withDefaults(), now: now, known: map[candidate]*admission{},
		ofTenant: map[carrel.TenantID]int{}, cuts: map[*Submission]context.CancelCauseFunc{},
	}
}

var errDraining = carrel.Fail("plugins.Submit", abi.Draining, "this host is shutting down; upload again when it is back")

// enter counts one more submission of a module. If nobody else's is under way,
// start makes the flight that judges it.
func (s *admissions) enter(at candidate, start func(*admission) *flight) (*admission, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errDraining
	}
	a := s.known[at]
	if a == nil || a.users == 0 {
		if a != nil {
			s.forget(a)
		}
		if err := s.room(at.tenant); err != nil {
			return nil, err
		}
		a = &admission{at: at, Progress: Progress{
			Digest: at.digest, State: State(sandbox.StageQueue), Since: s.now(),
		}}
		s.known[at] = a
		s.ofTenant[at.tenant]++
		a.flight = start(a)
	}
	a.users++
	s.running.Add(1)
	return a, nil
}

// room makes room for one more admission of a tenant: what is over for an hour
// goes, then what is over for longest. s.mu is held, as below.
func (s *admissions) room(t carrel.TenantID) error {
	for len(s.ended) > 0 && !s.fresh(s.ended[0]) {
		s.forget(s.ended[0])
	}
	if most := s.limits.PerTenant; s.ofTenant[t] >= most {
		i := slices.IndexFunc(s.ended, func(a *admission) bool { return a.at.tenant == t })
		if i < 0 {
			return carrel.FailLimit("plugins.Submit", abi.QuotaExceeded, "admissions", fmt.Sprintf(
				"%d modules of this tenant are being admitted already; wait for one, or let the host's operator raise `limits.admissions`", most))
		}
		s.forget(s.ended[i])
	}
	if most := s.limits.Total; len(s.known) >= most {
		if len(s.ended) == 0 {
			return carrel.FailLimit("plugins.Submit", abi.Overloaded, "admissionsTotal", fmt.Sprintf(
				"%d modules are being admitted already; the host's operator can raise `limits.admissionsTotal`", most))
		}
		s.forget(s.ended[0])
	}
	return nil
}

func (s *admissions) fresh(a *admission) bool { return s.now().Sub(a.Since) < admissionKept }

// forget drops an admission that nobody uses.
func (s *admissions) forget(a *admission) {
	s.ended = slices.DeleteFunc(s.ended, func(other *admission) bool { return other == a })
	delete(s.known, a.at)
	if s.ofTenant[a.at.tenant]--; s.ofTenant[a.at.tenant] == 0 {
		delete(s.ofTenant, a.at.tenant)
	}
}

// find returns how far the admission of a module is. firm is true if a version
// of the module tells nothing newer: as long as the admission goes on, and
// once an upload was refused.
func (s *admissions) find(at candidate) (p Progress, firm, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.known[at]
	if a == nil || a.users == 0 && !s.fresh(a) {
		return Progress{}, false, false
	}
	return a.copied(), !a.State.Ended() || a.State == StateRefused && a.came.tells == tellsOfAnUpload, true
}

func (s *admissions) progress(a *admission) Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.copied()
}

// copied needs admissions.mu.
func (a *admission) copied() Progress {
	p := a.Progress
	p.Stages = slices.Clone(p.Stages)
	return p
}

// stage notes that a stage begins.
func (s *admissions) stage(a *admission, next sandbox.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.State.Ended() && a.State != State(next) {
		s.advance(a, State(next))
	}
}

// advance takes an admission to its next state. A wait that was none is no
// stage. s.mu is held.
func (s *admissions) advance(a *admission, next State) {
	const none = time.Millisecond
	now := s.now()
	if took := now.Sub(a.Since); !a.State.Ended() && (a.State != State(sandbox.StageQueue) || took >= none) {
		a.Stages = append(a.Stages, StageTime{sandbox.Stage(a.State), took})
	}
	a.State, a.Since = next, now
}

// leave ends a submission. With the last one the judging ends, too, if it has
// not. A version ends the admission at once; anything else only when nobody is
// left who may yet make one.
func (s *admissions) leave(sub *Submission, out Uploaded, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.running.Done()
	delete(s.cuts, sub)
	a := sub.admission
	if a.users--; a.users == 0 {
		a.flight.cancel()
		a.flight = nil // it holds the module, and what its code wrote
		s.ended = append(s.ended, a)
	}
	if err == nil && !sub.upload.DryRun {
		state := StateStored
		if out.Plugin.Active == out.Version.Digest {
			state = StateActive
		}
		a.Plugin, a.N = out.Version.Plugin, out.Version.N
		s.advance(a, state)
		return
	}
	if came := sub.came(out, err); came.tells > a.came.tells {
		a.came = came
	}
	if a.users > 0 || a.State.Ended() {
		return
	}
	a.Plugin, a.Refused, a.Request = a.came.plugin, a.came.refused, a.came.request
	if a.Refused != nil {
		s.advance(a, StateRefused)
		return
	}
	s.advance(a, StateChecked)
}

// came is what a submission came to that made no version.
func (s *Submission) came(out Uploaded, err error) outcome {
	switch {
	case err == nil:
		return outcome{tells: tellsOfADryRun, plugin: out.Version.Plugin}
	case s.left:
		return outcome{tells: tellsThatOneLeft, refused: kept(err), request: s.upload.Request}
	case s.upload.DryRun:
		return outcome{tells: tellsOfADryRun, refused: kept(err), request: s.upload.Request}
	default:
		return outcome{tells: tellsOfAnUpload, refused: kept(err), request: s.upload.Request}
	}
}

// await lets cut end what a submission waits for.
func (s *admissions) await(sub *Submission, cut context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts[sub] = cut
	if s.cut {
		cut(errDraining)
	}
}

// drain waits for what runs, and ends it when ctx ends.
func (s *admissions) drain(ctx context.Context) {
	s.close()
	idle := make(chan struct{})
	go func() {
		s.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.cut = true
	for _, cut := range s.cuts {
		cut(errDraining)
	}
	s.mu.Unlock()
	<-idle
}

func (s *admissions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// maxRefusalBytes bounds what is remembered of one refusal.
const maxRefusalBytes = 16 << 10

// kept is what is remembered of an error.
func kept(err error) *carrel.Error {
	k := &carrel.Error{Op: "plugins.Upload", Code: carrel.CodeOf(err)}
	if k.Code == abi.Canceled {
		k.Msg = "the client that waited for it went away"
	}
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok || e.Code != k.Code {
		return k
	}
	k.Limit, k.GuestCode, k.Wait = e.Limit, e.GuestCode, e.Wait
	left := maxRefusalBytes
	k.Msg = module.Cut(e.Msg, left/2)
	left -= len(k.Msg)
	for i, f := range e.Faults {
		if left -= len(f.Pointer) + len(f.Message); left < 0 {
			k.Faults = append(k.Faults, carrel.Fault{Message: fmt.Sprintf("there are %d more faults; mend these first", len(e.Faults)-i)})
			break
		}
		k.Faults = append(k.Faults, f)
	}
	return k
}
