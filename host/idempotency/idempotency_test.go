package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/idempotency"
	"github.com/carrelhost/carrel/host/strictjson"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is a memory store that a test watches.
type disk struct {
	*memstore.Store

	mu     sync.Mutex // guards what follows
	claims []store.Claim
	fail   error // of Answer
	// silent, if not nil, says how an operation goes that never answers: done
	// or not. An ok one answers.
	silent func(op string) (done, ok bool)
	late   int // releases that have not answered yet
	most   int // of them at once
}

// hang is an operation that does not answer before its time is over, or nil.
func (d *disk) hang(ctx context.Context, op string, do func(context.Context) error) error {
	d.mu.Lock()
	silent := d.silent
	d.mu.Unlock()
	if silent == nil {
		return nil
	}
	done, ok := silent(op)
	if ok {
		return nil
	}
	if done {
		if err := do(ctx); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (d *disk) Claim(ctx context.Context, c store.Claim, most store.ClaimLimits) (store.Claimed, error) {
	d.mu.Lock()
	d.claims = append(d.claims, c)
	d.mu.Unlock()
	if err := d.hang(ctx, "claim", func(ctx context.Context) error {
		_, err := d.Store.Claim(ctx, c, most)
		return err
	}); err != nil {
		return store.Claimed{}, err
	}
	return d.Store.Claim(ctx, c, most)
}

func (d *disk) ReleaseClaim(ctx context.Context, c store.Claim) error {
	count := func(n int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.late += n
		d.most = max(d.most, d.late)
	}
	count(1)
	defer count(-1)
	release := func(ctx context.Context) error { return d.Store.ReleaseClaim(ctx, c) }
	if err := d.hang(ctx, "release", release); err != nil {
		return err
	}
	return release(ctx)
}

func (d *disk) Answer(ctx context.Context, a store.Answer) error {
	d.mu.Lock()
	err := d.fail
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return d.Store.Answer(ctx, a)
}

// last is the claim that was asked for last.
func (d *disk) last() store.Claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claims[len(d.claims)-1]
}

func newDisk() *disk { return &disk{Store: memstore.New(memstore.Config{})} }

const timeout = 10 * time.Second // of one write

// keeper is a keeper of a process run.
func keeper(t *testing.T, d *disk, node string, most int) *idempotency.Keeper {
	t.Helper()
	k, err := idempotency.New(idempotency.Config{
		Store: d, Secret: [32]byte{7}, Node: node, Most: store.ClaimLimits{Claims: most, Bytes: 1 << 20},
		Timeout: timeout, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// call is a call whose params are given as JSON.
func call(t testing.TB, params string, change func(*idempotency.Call)) idempotency.Call {
	t.Helper()
	value, err := strictjson.Value([]byte(params), strictjson.DefaultDepth)
	if err != nil {
		t.Fatal(err)
	}
	at, err := carrel.ParseAddress("p/S.chat")
	if err != nil {
		t.Fatal(err)
	}
	c := idempotency.Call{
		Key: "key", Caller: carrel.Caller{Tenant: "acme", Key: "key_1", Subject: "ada", Role: carrel.RoleCaller},
		Address: at, Session: "ses_1", Args: value.(map[string]any),
	}
	if change != nil {
		change(&c)
	}
	return c
}

func enter(t *testing.T, k *idempotency.Keeper, c idempotency.Call) *idempotency.Once {
	t.Helper()
	o, err := k.Enter(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// do makes a call, whose work answers as given, and returns the answer that
// its client gets: "replayed " and an earlier one, or its own.
func do(ctx context.Context, k *idempotency.Keeper, c idempotency.Call, handler bool, work func() (string, error)) (string, error) {
	o, err := k.Enter(ctx, c)
	if err != nil {
		return "", err
	}
	ok := false
	defer func() { o.End(ctx, ok) }()
	stored, err := o.Claim(ctx, handler)
	if err != nil {
		return "", err
	}
	if stored != nil {
		return "replayed " + string(stored.Answer), nil
	}
	answer, err := work()
	if err != nil {
		return "", err
	}
	ok = true
	return answer, o.Answer(ctx, []byte(answer))
}

func says(answer string) func() (string, error) { return func() (string, error) { return answer, nil } }

func want(t *testing.T, answer string, err error, wanted string) {
	t.Helper()
	if err != nil || answer != wanted {
		t.Fatalf("got %q, %v, want %q", answer, err, wanted)
	}
}

func wantCode(t *testing.T, err error, code abi.Code, limit string) {
	t.Helper()
	got := ""
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		got = e.Limit
	}
	if carrel.CodeOf(err) != code || got != limit {
		t.Fatalf("got %v with limit %q, want %v with limit %q", err, got, code, limit)
	}
}

func TestWhichCallsAreTheSame(t *testing.T) {
	const params = `{"a":1,"b":{"x":"é","y":[1,2]}}`
	at := func(address string) func(*idempotency.Call) {
		return func(c *idempotency.Call) {
			var err error
			if c.Address, err = carrel.ParseAddress(address); err != nil {
				t.Fatal(err)
			}
		}
	}
	const replay, another = "replayed first", "second"
	cases := map[string]struct {
		params string
		change func(*idempotency.Call)
		want   string // "" = idempotency_mismatch
	}{
		"the same call is":                                 {params, nil, replay},
		"the order of members does not matter":             {`{"b":{"y":[1,2],"x":"é"},"a":1}`, nil, replay},
		"white space and escapes do not matter":            {" {\n\"a\" : 1, \"b\" : {\"x\":\"\\u00e9\",\"y\":[ 1,2 ]}}", nil, replay},
		"a caller's role does not matter":                  {params, func(c *idempotency.Call) { c.Caller.Role = carrel.RoleOwner }, replay},
		"another value is a mismatch":                      {`{"a":2,"b":{"x":"é","y":[1,2]}}`, nil, ""},
		"a number that is written otherwise is a mismatch": {`{"a":1.0,"b":{"x":"é","y":[1,2]}}`, nil, ""},
		"the order of items matters":                       {`{"a":1,"b":{"x":"é","y":[2,1]}}`, nil, ""},
		"another session is a mismatch":                    {params, func(c *idempotency.Call) { c.Session = "ses_2" }, ""},
		"no session is a mismatch":                         {params, func(c *idempotency.Call) { c.Session = "" }, ""},
		"another key is another call":                      {params, func(c *idempotency.Call) { c.Key = "Key" }, another},
		"another tenant is another call":                   {params, func(c *idempotency.Call) { c.Caller.Tenant = "other" }, another},
		"another API key is another call":                  {params, func(c *idempotency.Call) { c.Caller.Key = "key_2" }, another},
		"another subject is another call":                  {params, func(c *idempotency.Call) { c.Caller.Subject = "bob" }, another},
		"another method is another call":                   {params, at("p/S.talk"), another},
		"another service is another call":                  {params, at("p/T.chat"), another},
		"another plugin is another call":                   {params, at("q/S.chat"), another},
		"an address with a version is another call":        {params, at("p@1/S.chat"), another},
		"an address with a digest is another call":         {params, at("p@" + fmt.Sprintf("%064x", 1) + "/S.chat"), another},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := keeper(t, newDisk(), "one", 10)
			got, err := do(t.Context(), k, call(t, params, nil), false, says("first"))
			want(t, got, err, "first")
			got, err = do(t.Context(), k, call(t, c.params, c.change), false, says("second"))
			if c.want == "" {
				wantCode(t, err, abi.IdempotencyMismatch, "")
				return
			}
			want(t, got, err, c.want)
		})
	}
}

func FuzzNoPartOfAnIdentityPassesForAnother(f *testing.F) {
	f.Add("k", "t", "i", "s", "kt", "", "i", "s")
	f.Add("k", "", "is", "", "k", "", "i", "s")
	f.Fuzz(func(t *testing.T, k1, t1, i1, s1, k2, t2, i2, s2 string) {
		d := newDisk()
		k := keeper(t, d, "one", 10)
		ask := func(key, tenant, id, subject string) store.Claim {
			o := enter(t, k, call(t, `{}`, func(c *idempotency.Call) {
				c.Key, c.Caller = key, carrel.Caller{Tenant: carrel.TenantID(tenant), Key: carrel.KeyID(id), Subject: carrel.Subject(subject)}
			}))
			defer o.End(t.Context(), false)
			if _, err := o.Claim(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			return d.last()
		}
		one, two := ask(k1, t1, i1, s1), ask(k2, t2, i2, s2)
		if same := k1 == k2 && t1 == t2 && i1 == i2 && s1 == s2; (one.ID == two.ID) != same {
			t.Errorf("the calls are the same: %v, and so for the store: %v", same, one.ID == two.ID)
		}
	})
}

func TestWhatAProcessThatIsGoneLeftUnanswered(t *testing.T) {
	for name, c := range map[string]struct {
		handler bool
		code    abi.Code
	}{
		"is free again if it was a chat":       {false, abi.OK},
		"stays in the way if it was a handler": {true, abi.IdempotencyInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			if _, err := enter(t, keeper(t, d, "one", 10), call(t, `{}`, nil)).Claim(t.Context(), c.handler); err != nil {
				t.Fatal(err)
			}
			k := keeper(t, d, "two", 10)
			if err := k.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err := do(t.Context(), k, call(t, `{}`, nil), c.handler, says("A1"))
				wantCode(t, err, c.code, "")
			}
		})
	}
}

func TestAHandlerWhoseAnswerWasNotStoredIsNeverRunAgain(t *testing.T) {
	d := newDisk()
	k := keeper(t, d, "one", 10)
	d.fail = errors.New("the disk is full")
	if _, err := do(t.Context(), k, call(t, `{}`, nil), true, says("A1")); !errors.Is(err, d.fail) {
		t.Fatalf("got %v", err)
	}
	d.fail = nil
	for range 2 {
		_, err := do(t.Context(), k, call(t, `{}`, nil), true, says("A2"))
		wantCode(t, err, abi.IdempotencyInterrupted, "")
	}
}

func TestAfterDoubtTheStoreDecides(t *testing.T) {
	for name, c := range map[string]struct {
		stored bool
		want   string
	}{
		"an answer that came to be stored is given":    {true, "replayed A1"},
		"one that never was lets the next do the work": {false, "A2"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			k := keeper(t, d, "one", 10)
			o := enter(t, k, call(t, `{}`, nil))
			if _, err := o.Claim(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			sealed := o.Seal([]byte("A1"))
			o.Doubt()
			o.End(t.Context(), false)
			if c.stored { // after the end: a release would have come before it
				if err := d.Answer(t.Context(), *sealed); err != nil {
					t.Fatal(err)
				}
			}
			got, err := do(t.Context(), k, call(t, `{}`, nil), false, says("A2"))
			want(t, got, err, c.want)
		})
	}
}
