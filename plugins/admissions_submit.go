package plugins

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
)

// flight judges one module, for all who submitted it in one tenant in the
// meantime.
type flight struct {
	module []byte
	cancel context.CancelFunc
	done   chan struct{} // closed at its end

	found  Admission // to be read after done, as is err
	err    error
	logged sync.Once // what found has for the plugin's log
}

// Submission is an upload that is under way. Whoever got it calls Wait once.
type Submission struct {
	catalog   *Catalog
	upload    Upload // its module is the flight's
	admission *admission
	flight    *flight
	left      bool // its context ended, and with that it; written before leave
}

// Submit begins to take in a module; from then on Progress tells how far it
// is. It goes on when ctx ends: see Submission.Wait. Modules that a tenant
// submits while the same bytes are judged are judged with them, once. Errors are
// draining, quota_exceeded with the limit admissions, overloaded with
// admissionsTotal, and forbidden for bytes that are quarantined.
func (c *Catalog) Submit(ctx context.Context, u Upload) (*Submission, error) {
	at := candidate{u.Tenant, carrel.DigestOf(u.Module)}
	if err := c.healthy("plugins.Submit", at.digest); err != nil {
		return nil, err
	}
	a, err := c.admissions.enter(at, func(a *admission) *flight {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f := &flight{module: u.Module, cancel: cancel, done: make(chan struct{})}
		c.abandoned.Go(func() { c.judge(ctx, a, f, u) })
		return f
	})
	if err != nil {
		return nil, err
	}
	s := &Submission{catalog: c, upload: u, admission: a, flight: a.flight}
	s.upload.Module = a.flight.module // so that equal bytes are held once
	return s, nil
}

// judge waits for the module's turn and admits it. A panic would end the
// process, for nobody else runs in this goroutine.
func (c *Catalog) judge(ctx context.Context, a *admission, f *flight, u Upload) {
	defer close(f.done)
	defer f.cancel()
	f.err = guarded(func() error {
		if u.Enter != nil {
			leave, err := u.Enter(ctx)
			if err != nil {
				return err
			}
			defer leave()
		}
		var err error
		f.found, err = c.cfg.Admit(ctx, Candidate{
			Tenant: u.Tenant, Module: f.module, Stage: func(s sandbox.Stage) { c.admissions.stage(a, s) },
		})
		return err
	})
}

// guarded returns a panic as an error.
func guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("admission: panic: %v\n%s", v, debug.Stack())
		}
	}()
	return f()
}

// Wait returns what became of the upload, see Catalog.Upload. When ctx ends it
// leaves; with the last who waits for these bytes their admission ends.
func (s *Submission) Wait(ctx context.Context) (out Uploaded, err error) {
	admissions := s.catalog.admissions
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	ctx, stop := context.WithTimeoutCause(ctx, admissions.limits.Timeout, carrel.FailLimit("plugins.Upload", abi.Overloaded, "admissionTimeout",
		fmt.Sprintf("the module was not admitted within %v, with the time that it waited for others; upload it again, or let the host's operator raise `limits.uploads` or `limits.admissionTimeout`",
			admissions.limits.Timeout)))
	defer stop()
	admissions.await(s, cut)
	defer func() { admissions.leave(s, out, err) }()
	select {
	case <-s.flight.done:
	case <-ctx.Done():
		s.left = true
		return Uploaded{}, because(ctx, ctx.Err())
	}
	if s.flight.err != nil {
		return Uploaded{}, s.flight.err
	}
	err = guarded(func() error {
		out, err = s.catalog.finish(ctx, s.upload, s.flight.found)
		return err
	})
	if err == nil && !s.upload.DryRun {
		s.flight.logged.Do(func() { s.catalog.logAdmission(s.upload, out.Version.Plugin, s.flight.found.Log) })
	}
	s.left = err != nil && ctx.Err() != nil
	return out, because(ctx, err)
}

// Progress tells how far the submission is.
func (s *Submission) Progress() Progress { return s.catalog.admissions.progress(s.admission) }

// because says why a context ended instead of that it did.
func because(ctx context.Context, err error) error {
	why, known := errors.AsType[*carrel.Error](context.Cause(ctx))
	if _, own := errors.AsType[*carrel.Error](err); err == nil || own || !known {
		return err
	}
	return why
}

// Progress tells how far the latest admission of a module in a tenant is. One
// that is over is remembered for an hour; what is stored is found by its
// version for as long as that is there, with the state that it has now,
// whatever a later dry run or an upload that was given up came to. An upload
// that was refused is told all the same: whoever waits for it must not take
// the version of before for its own. If there is neither it returns not_found.
func (c *Catalog) Progress(ctx context.Context, t carrel.TenantID, d carrel.Digest) (Progress, error) {
	p, firm, known := c.admissions.find(candidate{t, d})
	if firm {
		return p, nil
	}
	v, err := c.cfg.Store.FindVersion(ctx, t, d)
	if carrel.CodeOf(err) == abi.NotFound && known && (p.State == StateChecked || p.State == StateRefused) {
		return p, nil
	}
	if err != nil {
		return Progress{}, fmt.Errorf("find version: %w", err)
	}
	row, err := c.Plugin(ctx, t, v.Plugin)
	if err != nil {
		return Progress{}, err
	}
	if !known || p.N != v.N {
		p = Progress{Digest: d, Since: v.CreatedAt}
	}
	p.Plugin, p.N, p.State = v.Plugin, v.N, StateStored
	if row.Active == d {
		p.State = StateActive
	}
	return p, nil
}

// StopAccepting refuses uploads from now on, with draining.
func (c *Catalog) StopAccepting() { c.admissions.close() }

// Drain refuses new uploads, waits for those that run until ctx ends, and ends
// the rest with draining. It returns when all have ended.
func (c *Catalog) Drain(ctx context.Context) { c.admissions.drain(ctx) }
