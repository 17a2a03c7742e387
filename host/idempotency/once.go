package idempotency

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// place is one identity that a call of this process works on.
type place struct {
	taken   *[32]byte // the fingerprint of the claim that this call has; nil = none yet
	waiting []*Once   // in order of arrival
}

// Once is the place of one call among those with its identity: no other of
// this process is past Enter meanwhile. It is for one goroutine, which calls
// End once.
type Once struct {
	k           *Keeper
	id          [32]byte
	fingerprint [32]byte
	tenant      carrel.TenantID
	subject     carrel.Subject
	aead        cipher.AEAD

	turn    chan error  // has room for one: nil when its turn has come, or why it never will
	made    store.Claim // the last that the store was asked for
	claimed bool
	unsure  bool // nobody knows whether the store took the claim
	doubt   bool
}

// Enter waits until no other call with this identity is being worked on in
// this process, in order of arrival. Errors: idempotency_mismatch if the one
// that is says something else, timeout, or what wraps the end of ctx.
func (k *Keeper) Enter(ctx context.Context, c Call) (*Once, error) {
	content, err := c.content(k.cfg.Secret)
	if err != nil {
		return nil, err
	}
	o := &Once{
		k: k, id: c.identity(k.cfg.Secret), fingerprint: sum(k.cfg.Secret, labelFingerprint, content[:]),
		tenant: c.Caller.Tenant, subject: c.Caller.Subject, turn: make(chan error, 1),
	}
	if o.aead, err = sealer(k.cfg.Secret, content, c.Key); err != nil {
		return nil, err
	}
	if err := k.queue(o); err != nil {
		return nil, err
	}
	select {
	case err := <-o.turn:
		if err != nil {
			return nil, err
		}
		return o, nil
	case <-ctx.Done():
		k.abandon(o)
		return nil, waited(ctx)
	}
}

// queue gives a call its place among those with its identity.
func (k *Keeper) queue(o *Once) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, busy := k.places[o.id]
	switch {
	case !busy:
		k.places[o.id] = &place{}
		o.turn <- nil
	case p.taken != nil && *p.taken != o.fingerprint:
		return mismatch()
	default:
		p.waiting = append(p.waiting, o)
	}
	return nil
}

// abandon gives up a place, and passes on the turn if it came meanwhile.
func (k *Keeper) abandon(o *Once) {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case err := <-o.turn:
		if err == nil {
			k.next(o.id)
		}
	default:
		p := k.places[o.id]
		p.waiting = slices.DeleteFunc(p.waiting, func(w *Once) bool { return w == o })
	}
}

// next passes the turn on. k.mu is held.
func (k *Keeper) next(id [32]byte) {
	p := k.places[id]
	p.taken = nil
	if len(p.waiting) == 0 {
		delete(k.places, id)
		return
	}
	p.waiting[0].turn <- nil
	p.waiting = slices.Delete(p.waiting, 0, 1)
}

// take says that the call has the claim: those that wait and say something
// else wait in vain.
func (o *Once) take() {
	o.claimed = true
	o.k.mu.Lock()
	defer o.k.mu.Unlock()
	p := o.k.places[o.id]
	p.taken = &o.fingerprint
	p.waiting = slices.DeleteFunc(p.waiting, func(w *Once) bool {
		if w.fingerprint == o.fingerprint {
			return false
		}
		w.turn <- mismatch()
		return true
	})
}

// Stored is the answer of an earlier call.
type Stored struct {
	Answer  []byte
	Trimmed int64 // as in store.Claimed
}

// Claim takes the claim, durably, and returns nil: the caller is to do the
// work. Or it returns the answer of whoever did it. Handler says that the work
// is a guest's code. Errors: idempotency_mismatch, idempotency_interrupted,
// quota_exceeded for idempotencyKeys or idempotencyBytes, timeout, and those of
// the store.
func (o *Once) Claim(ctx context.Context, handler bool) (*Stored, error) {
	const op = "idempotency.Claim"
	for {
		found, err := o.claim(ctx, handler)
		if err != nil {
			return nil, err
		}
		switch found.State {
		case store.ClaimTaken:
			o.take()
			return nil, nil //nolint:nilnil // there is nothing stored
		case store.ClaimAnswered:
			answer, err := o.aead.Open(nil, nil, found.Sealed, o.id[:])
			if err != nil {
				return nil, fmt.Errorf("open stored answer: %w", err)
			}
			return &Stored{Answer: answer, Trimmed: found.Trimmed}, nil
		case store.ClaimInterrupted:
			return nil, carrel.Fail(op, abi.IdempotencyInterrupted,
				"the first call with this Idempotency-Key ran the plugin's code and was cut short, so nobody knows how far it came; find out, and call with another key")
		case store.ClaimElsewhere:
			if err := pause(ctx); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("claim: the store knows a state %d", found.State)
		}
	}
}

// claim is not cut short by the end of ctx: a handler's claim of which nobody
// knows whether it was taken would count as interrupted.
func (o *Once) claim(ctx context.Context, handler bool) (store.Claimed, error) {
	const op = "idempotency.Claim"
	if err := ctx.Err(); err != nil {
		return store.Claimed{}, fmt.Errorf("before claim: %w", err)
	}
	ctx, leave, err := o.k.admit(ctx)
	if err != nil {
		return store.Claimed{}, fmt.Errorf("before claim: %w", err)
	}
	defer leave()
	writing, cancel := o.k.writing(ctx)
	defer cancel()
	o.made = store.Claim{
		ID: o.id, Fingerprint: o.fingerprint, Tenant: o.tenant, Subject: o.subject,
		Node: o.k.cfg.Node, Handler: handler, At: o.k.claimTime(), Cutoff: o.k.cutoff(),
	}
	found, err := o.k.cfg.Store.Claim(writing, o.made, o.k.cfg.Most)
	code := carrel.CodeOf(err)
	// What the store says of a claim that it refuses is the whole truth.
	o.unsure = code == abi.Timeout || code == abi.Canceled || code == abi.Internal ||
		writing.Err() != nil && errors.Is(err, writing.Err())
	switch {
	case err == nil:
		return found, nil
	case code == abi.IdempotencyMismatch:
		return found, mismatch()
	case code == abi.QuotaExceeded:
		return found, o.full(err)
	case writing.Err() != nil && errors.Is(err, writing.Err()):
		return found, &carrel.Error{
			Op: op, Code: abi.Timeout, Limit: "commitTimeout", Err: err, Msg: fmt.Sprintf(
				"the store did not answer within %v; nothing was called. The host's operator can raise `limits.commitTimeout`", o.k.cfg.Timeout),
		}
	default:
		return found, fmt.Errorf("claim: %w", err)
	}
}

// fullWait is when to try again where there is no room: it comes as claims grow
// old, which takes hours for all of them and may take minutes for the next.
const fullWait = time.Minute

// full is the error of a claim for which the tenant has no room.
func (o *Once) full(err error) error {
	const op, remedy = "idempotency.Claim", "call without Idempotency-Key, or the host's operator can raise"
	if e, ok := errors.AsType[*carrel.Error](err); ok && e.Limit == "idempotencyBytes" {
		return &carrel.Error{
			Op: op, Code: abi.QuotaExceeded, Limit: e.Limit, Wait: fullWait, Err: err, Msg: fmt.Sprintf(
				"%d bytes of answers to calls of this tenant are kept, each for %v; %s `limits.idempotencyBytes`", o.k.cfg.Most.Bytes, Kept, remedy),
		}
	}
	return &carrel.Error{
		Op: op, Code: abi.QuotaExceeded, Limit: "idempotencyKeys", Wait: fullWait, Err: err, Msg: fmt.Sprintf(
			"%d calls of this tenant are remembered, each for %v; %s `limits.idempotencyKeys`", o.k.cfg.Most.Claims, Kept, remedy),
	}
}

// pause waits before the store is asked again.
func pause(ctx context.Context) error {
	t := time.NewTimer(askEvery)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // both may have come
		return waited(ctx)
	}
	return nil
}

// Seal encrypts the answer of the call, to be stored with what it did.
func (o *Once) Seal(answer []byte) *store.Answer {
	//nolint:gosec // this AEAD draws its nonces itself and takes none
	return &store.Answer{Claim: o.id, Sealed: o.aead.Seal(nil, nil, answer, o.id[:]), At: o.k.cfg.Now()}
}

// Answer stores the answer of work that is done, also if ctx has ended. After
// an error the claim stays as it is: whoever calls again gets the answer, or
// learns that there was a first call, and never repeats its work.
func (o *Once) Answer(ctx context.Context, answer []byte) error {
	ctx, leave, _ := o.k.admit(ctx) // it is stored also if ctx has ended
	defer leave()
	ctx, cancel := o.k.writing(ctx)
	defer cancel()
	if err := o.k.cfg.Store.Answer(ctx, *o.Seal(answer)); err != nil {
		o.Doubt()
		return fmt.Errorf("store answer: %w", err)
	}
	return nil
}

// Doubt says that nobody knows whether the answer is stored. Then the claim is
// not released: the store decides a write that was given up before any that
// comes later, so that the next claim finds what became of this one.
func (o *Once) Doubt() { o.doubt = true }

// End gives the turn to the next call. If this one had the claim and failed,
// the claim is released first, unless there is doubt. If the store does not
// say that it is, or was not heard when the claim was to be taken, the release
// is tried in the background, and the next call's turn comes after it.
func (o *Once) End(ctx context.Context, ok bool) {
	taken := o.claimed && !ok && !o.doubt
	if o.unsure || taken && o.release(ctx) != nil {
		if o.k.releaseLater(ctx, o) {
			return
		}
		o.k.cfg.Log.Error("idempotency key not released: too many wait for the store", "tenant", o.tenant)
	}
	o.k.pass(o)
}

func mismatch() error {
	return carrel.Fail("idempotency.Claim", abi.IdempotencyMismatch,
		"this Idempotency-Key came with other params, or in another session, before; repeat that call unchanged, or use another key")
}

// waited is the error of a call that waited for another in vain.
func waited(ctx context.Context) error {
	if carrel.CodeOf(context.Cause(ctx)) == abi.Timeout {
		return &carrel.Error{
			Op: "idempotency.Enter", Code: abi.Timeout, Limit: "timeout", Err: ctx.Err(),
			Msg: "another call with this Idempotency-Key did not end within this one's time; repeat it to get the answer",
		}
	}
	return fmt.Errorf("wait for the first call: %w", ctx.Err())
}
