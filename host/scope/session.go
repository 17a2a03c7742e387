package scope

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

// Session is the ambient session of an invocation: a WebSocket's own, or an
// HTTP session that was entered.
type Session struct {
	r  *Registry
	in store.ScopeInstance
}

// ID returns the session's id.
func (s *Session) ID() carrel.SessionID { return carrel.SessionID(s.in.ID) }

// NewSession is what a client asks for. Zero TTLs are the registry's defaults.
type NewSession struct {
	Owner    carrel.Caller
	IdleTTL  time.Duration
	MaxTTL   time.Duration
	Metadata []byte // JSON
}

// SessionLimits bound HTTP sessions.
type SessionLimits struct {
	Sessions    int           // open at once, of one tenant
	DefaultIdle time.Duration // where a client asks for none
	DefaultMax  time.Duration
	MostIdle    time.Duration // that a client may ask for
	MostMax     time.Duration
}

func (r *Registry) newSessionID() carrel.SessionID { return carrel.SessionID("ses_" + r.cfg.NewID()) }

// OpenSession opens an HTTP session. Errors: bad_request for a TTL below 0,
// limit_exceeded for one above the limits, quota_exceeded, and the store's.
func (r *Registry) OpenSession(ctx context.Context, n NewSession) (store.Session, error) {
	l := r.cfg.Sessions
	idle, err := ttl(n.IdleTTL, l.DefaultIdle, l.MostIdle, "sessionIdleTtlMax")
	if err != nil {
		return store.Session{}, err
	}
	longest, err := ttl(n.MaxTTL, l.DefaultMax, l.MostMax, "sessionMaxTtlMax")
	if err != nil {
		return store.Session{}, err
	}
	now := r.cfg.Now().UTC().Truncate(time.Microsecond)
	s := store.Session{
		ID: r.newSessionID(), Tenant: n.Owner.Tenant, Owner: store.Toucher{Key: n.Owner.Key, Subject: n.Owner.Subject},
		IdleTTL: idle, MaxTTL: longest, Metadata: n.Metadata, CreatedAt: now, LastUsedAt: now,
	}
	err = r.cfg.Store.CreateSession(ctx, s, l.Sessions)
	if carrel.CodeOf(err) == abi.QuotaExceeded { // which counts those that are over and not swept yet
		if err := r.closeExpired(ctx); err != nil {
			return store.Session{}, err
		}
		err = r.cfg.Store.CreateSession(ctx, s, l.Sessions)
	}
	if err != nil {
		return store.Session{}, fmt.Errorf("create session: %w", err)
	}
	return s, nil
}

func ttl(asked, otherwise, most time.Duration, limit string) (time.Duration, error) {
	if asked == 0 {
		return otherwise, nil
	}
	if asked < 0 {
		return 0, carrel.Fail("scope.OpenSession", abi.BadRequest, "a session's TTL is a positive duration")
	}
	if asked > most {
		return 0, carrel.FailLimit("scope.OpenSession", abi.LimitExceeded, limit, fmt.Sprintf(
			"a session may ask for at most %v; the host's operator can raise `limits.%s`", most, limit))
	}
	return asked, nil
}

// OpenSocket opens the session that a WebSocket is. Whoever opened it closes
// it with Session.Close.
func (r *Registry) OpenSocket(ctx context.Context, t carrel.TenantID) (*Session, error) {
	in := store.ScopeInstance{
		ID: carrel.ScopeID(r.newSessionID()), Tenant: t, Scope: carrel.ScopeSession,
		Node: r.cfg.Node, OpenedAt: r.cfg.Now(),
	}
	if err := r.cfg.Store.OpenSession(ctx, in); err != nil {
		if inDoubt(err) && !errors.Is(err, store.ErrExists) {
			r.closeUnused(in.ID)
		}
		return nil, fmt.Errorf("open session: %w", err)
	}
	return &Session{r, in}, nil
}

// Close closes a WebSocket's own session and evicts what was touched in it,
// also if ctx has ended.
func (s *Session) Close(ctx context.Context) Closed {
	return s.r.close(ctx, s.in.ID, carrel.ReasonScopeClosed)
}

// Find returns a session that the caller may use, open or not: its owner's,
// and for list and close any of the tenant's owner. Others are not_found. One
// whose TTL has passed is closed first.
func (r *Registry) Find(ctx context.Context, who carrel.Caller, id carrel.SessionID) (store.Session, error) {
	by := &store.Toucher{Key: who.Key, Subject: who.Subject}
	if who.Role == carrel.RoleOwner {
		by = nil
	}
	return r.find(ctx, who.Tenant, id, by)
}

func (r *Registry) find(ctx context.Context, t carrel.TenantID, id carrel.SessionID, by *store.Toucher) (store.Session, error) {
	now := r.observe()
	s, err := r.cfg.Store.Session(ctx, t, id, by)
	if err != nil {
		return store.Session{}, fmt.Errorf("find session: %w", err)
	}
	if !s.ClosedAt.IsZero() {
		return s, nil
	}
	why, closing := now.closing[carrel.ScopeID(id)]
	if !closing {
		if !now.expired(s) {
			return s, nil
		}
		why = carrel.ReasonExpired
		closing = r.close(ctx, carrel.ScopeID(id), why).Pending
	}
	if closing {
		s.ClosedAt, s.Reason = now.at, why // for this caller it is
		return s, nil
	}
	if s, err = r.cfg.Store.Session(ctx, t, id, by); err != nil {
		return store.Session{}, fmt.Errorf("find session: %w", err)
	}
	return s, nil
}

// moment is an instant, and the sessions that were in use then or closed but
// for their eviction.
type moment struct {
	at      time.Time
	inUse   map[carrel.SessionID]int
	closing map[carrel.ScopeID]carrel.EvictionReason
}

// observe returns this moment. Whoever judges a session takes it before
// reading the session: an invocation that ends in between moves LastUsedAt,
// which the other order would miss.
func (r *Registry) observe() moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return moment{r.cfg.Now(), maps.Clone(r.inUse), maps.Clone(r.pending)}
}

// end returns when a session's time passes or has passed, if nobody uses it
// anew. One with an invocation in flight is not idle; its max TTL cuts it all
// the same.
func (m moment) end(s store.Session) time.Time {
	longest, idle := s.CreatedAt.Add(s.MaxTTL), s.LastUsedAt.Add(s.IdleTTL)
	if !m.at.Before(idle) && m.inUse[s.ID] > 0 {
		return longest
	}
	return earlier(longest, idle)
}

func (m moment) expired(s store.Session) bool { return !m.at.Before(m.end(s)) }

// isClosing reports whether a session was closed but for its eviction.
func (m moment) isClosing(s store.Session) bool {
	_, closing := m.closing[carrel.ScopeID(s.ID)]
	return closing
}

// over reports whether a session that is open in the store is at its end.
func (m moment) over(s store.Session) bool {
	return m.isClosing(s) || m.expired(s)
}

// begin counts a use of a session.
func (r *Registry) begin(id carrel.SessionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inUse[id]++
}

func (r *Registry) end(id carrel.SessionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inUse[id]--; r.inUse[id] == 0 {
		delete(r.inUse, id)
	}
}

// Enter makes an HTTP session the ambient one of an invocation, which calls
// leave at its end. Only the session's owner may, to others it is not_found;
// closed or expired it is session_closed.
func (r *Registry) Enter(ctx context.Context, who carrel.Caller, id carrel.SessionID) (s *Session, leave func(), err error) {
	row, err := r.find(ctx, who.Tenant, id, &store.Toucher{Key: who.Key, Subject: who.Subject})
	if err != nil {
		return nil, nil, err
	}
	if !row.ClosedAt.IsZero() {
		return nil, nil, carrel.Fail("scope.Enter", abi.SessionClosed, "the session is closed, or its time has passed; open another")
	}
	r.begin(id)
	used := r.cfg.Now().Truncate(time.Microsecond)                            // as it is stored
	if err := r.cfg.Store.UseSession(ctx, who.Tenant, id, used); err != nil { // session_closed if it closed since
		r.end(id)
		return nil, nil, fmt.Errorf("use session: %w", err)
	}
	// From the instant before its use and from its beginning, so that this is
	// never later than what the store has.
	r.expiry.note(earlier(used.Add(row.IdleTTL), row.CreatedAt.Add(row.MaxTTL)))
	in := store.ScopeInstance{ID: carrel.ScopeID(id), Tenant: who.Tenant, Scope: carrel.ScopeSession}
	return &Session{r, in}, func() { r.leave(ctx, in, row.IdleTTL) }, nil
}

// leave ends a use of a session, also if ctx has ended: its idle time begins
// now. If that cannot be written it began earlier, and may be over.
func (r *Registry) leave(ctx context.Context, in store.ScopeInstance, idle time.Duration) {
	if passed, pass, err := r.Pass(ctx); err == nil {
		ctx = passed
		defer pass()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.EvictTimeout)
	defer cancel()
	now := r.cfg.Now().Truncate(time.Microsecond)
	next := now.Add(idle)
	if err := r.cfg.Store.UseSession(ctx, in.Tenant, carrel.SessionID(in.ID), now); err != nil {
		r.cfg.Log.Debug("end of use not noted", "session", in.ID, "err", err)
		next = now
	}
	r.end(carrel.SessionID(in.ID))
	// After its end: who looked before saw it in use, and did not count on this.
	r.expiry.note(next)
}

// CloseSession closes a session that the caller may close, and returns it with
// what ended with it; a session that is closed already the same way again.
func (r *Registry) CloseSession(ctx context.Context, who carrel.Caller, id carrel.SessionID) (store.Session, Closed, error) {
	s, err := r.Find(ctx, who, id)
	if err != nil {
		return store.Session{}, Closed{}, err
	}
	if s.ClosedAt.IsZero() {
		if closed := r.close(ctx, carrel.ScopeID(id), carrel.ReasonScopeClosed); closed.Pending {
			return s, closed, nil
		}
		// Read again, for somebody else may have closed it in this moment.
		if s, err = r.Find(ctx, who, id); err != nil {
			return store.Session{}, Closed{}, err
		}
	}
	_, pending := r.observe().closing[carrel.ScopeID(id)]
	return s, Closed{Evicted: s.Evicted, Pending: pending}, nil
}

// Sessions lists up to limit open sessions that the caller may see, after an
// id: its own, and all of the tenant for its owner. Fewer than limit are the
// last.
func (r *Registry) Sessions(ctx context.Context, who carrel.Caller, after carrel.SessionID, limit int) ([]store.Session, error) {
	by := &store.Toucher{Key: who.Key, Subject: who.Subject}
	if who.Role == carrel.RoleOwner {
		by = nil
	}
	var out []store.Session
	for {
		now, ask := r.observe(), limit-len(out)
		rows, err := r.cfg.Store.ListSessions(ctx, who.Tenant, by, after, ask)
		if err != nil {
			return nil, fmt.Errorf("list sessions: %w", err)
		}
		last := len(rows) < ask
		if len(rows) > 0 {
			after = rows[len(rows)-1].ID
		}
		out = append(out, slices.DeleteFunc(rows, now.over)...)
		if last || len(out) >= limit {
			return out, nil
		}
	}
}

// sweep closes the sessions whose time has passed and forgets those that were
// closed long ago.
func (r *Registry) sweep(ctx context.Context) error {
	if err := r.closeExpired(ctx); err != nil {
		return err
	}
	if _, err := r.cfg.Store.ForgetSessions(ctx, r.cfg.Now()); err != nil {
		return fmt.Errorf("forget closed sessions: %w", err)
	}
	return nil
}
