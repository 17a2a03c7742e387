// Package crash_test kills and crashes the program `carrel`, which runs in a
// process of its own, and looks at what is left.
package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/store/sqlite"
)

// program is what is killed.
var program testenv.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

// Methods of the example smallest-scope: what the first one touches stays, what
// the second one does ends with the request.
const (
	lasting  = "smallest-scope/com.acme.Lasting.chat"
	fleeting = "smallest-scope/com.acme.Fleeting.chat"
)

// crashes is how many times TestCrashes kills the host: `make crash` asks for
// many more.
func crashes(t *testing.T) int {
	t.Helper()
	said := os.Getenv("CARREL_TEST_KILLS")
	if said == "" {
		return 20
	}
	n, err := strconv.Atoi(said)
	if err != nil || n < 1 {
		t.Fatalf("CARREL_TEST_KILLS is %q", said)
	}
	return n
}

// offline is `carrel serve` with the model that needs no server, so that what
// is killed is as busy as it can be.
func offline(t *testing.T, data string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program.Path(t), "serve")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + data, "CARREL_DATA=" + data, "CARREL_LISTEN=127.0.0.1:0",
		"CARREL_LIMITS_MESSAGES_PER_HISTORY=10000000", "CARREL_LIMITS_IDEMPOTENCY_KEYS=10000000", "CARREL_LIMITS_IDEMPOTENCY_BYTES=100000000000",
	}
	return cmd
}

const lounge = `---
name: lounge
version: 1.0.0
services:
  - name: com.acme.Lounge
    scope: session
    methods:
      - name: chat
---
You remember while we talk
`

const loungeMethod = "lounge/com.acme.Lounge.chat"

// repeater says its turns on one history, one after the other, and each until
// it is acknowledged: after a crash with the same idempotency key.
type repeater struct {
	plugin, method string
	params         []string // besides msg
	told           int      // acknowledged turns
	memory         string
}

func (r *repeater) say(ctx context.Context, a *testenv.Actor) error {
	next := fmt.Sprint(r.told + 1)
	out, err := a.With("Idempotency-Key", strings.Join(r.params, "/")+"/"+next).Call(ctx, r.method, append([]string{"msg", next}, r.params...)...)
	if err == nil {
		r.told, r.memory = r.told+1, out.MemoryID
	}
	return err
}

// check reads the whole history: every acknowledged turn once, in order, and
// nothing else.
func (r *repeater) check(t *testing.T, a *testenv.Actor) {
	t.Helper()
	stored := a.Stored(r.plugin, r.memory)
	if len(stored) != 1+2*r.told {
		t.Errorf("%s: %d messages are stored, %d turns were acknowledged", r.memory, len(stored), r.told)
		return
	}
	for n := range r.told {
		user, answer := stored[1+2*n], stored[2+2*n]
		if user != fmt.Sprint("user:", n+1) || !strings.HasSuffix(answer, fmt.Sprintf("Now you say: %q.", fmt.Sprint(n+1))) {
			t.Errorf("%s: turn %d is %q %q", r.memory, n+1, user, answer)
			return
		}
	}
}

// doomer touches histories of an application with a request's scope, which
// ends them.
type doomer struct {
	name  string
	made  int
	ended []string // acknowledged ends
	open  string   // its end was not acknowledged yet
}

func (d *doomer) doom(ctx context.Context, a *testenv.Actor) error {
	d.open = fmt.Sprintf("%s-%d", d.name, d.made)
	d.made++
	if _, err := a.Call(ctx, lasting, "id", d.open, "msg", "before"); err != nil {
		return err
	}
	if _, err := a.Call(ctx, fleeting, "id", d.open, "msg", "the end"); err != nil {
		return err
	}
	d.ended, d.open = append(d.ended, d.open), ""
	return nil
}

// check holds the list of all histories against what this one ended, and
// forgets it.
func (d *doomer) check(t *testing.T, left map[string]int64) {
	t.Helper()
	for _, id := range d.ended {
		if _, alive := left[id]; alive {
			t.Errorf("%s is alive, which a request that was answered had touched", id)
		}
	}
	if n, alive := left[d.open]; alive && n != 0 && n != 3 {
		t.Errorf("%s has %d messages: neither what it had nor gone", d.open, n)
	}
	d.ended = nil
}

// crowd is everybody who talks to the host.
type crowd struct {
	repeaters []*repeater
	doomers   []*doomer
	sockets   int
	acked     atomic.Int64
	busy      time.Duration
	slowest   time.Duration // start
	dead      []string      // sessions of WebSockets that were killed
}

// talk has everybody talk until so many turns are acknowledged, then calls
// kill, and returns when all have noticed.
func (c *crowd) talk(t *testing.T, owner *testenv.Actor, enough int64, kill func()) {
	var all sync.WaitGroup
	from, reached := c.acked.Load(), make(chan struct{})
	once := sync.OnceFunc(func() { close(reached) })
	count := func(n int64) {
		if c.acked.Add(n)-from >= enough {
			once()
		}
	}
	begin := time.Now()
	for _, r := range c.repeaters {
		all.Go(func() {
			for r.say(t.Context(), owner) == nil {
				count(1)
			}
		})
	}
	for _, d := range c.doomers {
		all.Go(func() {
			for d.doom(t.Context(), owner) == nil {
				count(2)
			}
		})
	}
	for range c.sockets {
		s, err := owner.Client().Connect(t.Context(), client.SocketOptions{})
		if err != nil {
			t.Fatalf("open a WebSocket: %v", err)
		}
		c.dead = append(c.dead, s.Session)
		all.Go(func() {
			defer s.Close() //nolint:errcheck // it was cut
			for {
				call, err := s.Invoke(t.Context(), client.Frame{Method: loungeMethod, Args: map[string]string{"msg": "hello"}})
				if err != nil {
					return
				}
				if _, err := call.Result(t.Context()); err != nil {
					return
				}
				count(1)
			}
		})
	}
	<-reached
	c.busy += time.Since(begin)
	kill()
	all.Wait()
}

// up starts the host and waits until it is ready.
func (c *crowd) up(t *testing.T, data string) (*testenv.Process, *testenv.Actor) {
	t.Helper()
	cmd := offline(t, data)
	begin := time.Now()
	p := testenv.Listening(t, cmd)
	owner := p.Owner(t, data, nil)
	if ans := owner.Do(http.MethodGet, "/readyz", ""); ans.Status != http.StatusOK {
		t.Fatalf("the host listens and is not ready: %d", ans.Status)
	}
	c.slowest = max(c.slowest, time.Since(begin))
	return p, owner
}

// TestCrashes kills the host again and again while everybody talks.
func TestCrashes(t *testing.T) {
	kills, data := crashes(t), t.TempDir()
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	c := &crowd{sockets: 2}
	p, owner := c.up(t, data)
	owner.Install(testenv.Example(t, "smallest-scope"))
	owner.Install(lounge)
	in := owner.Open(client.NewSession{IdleTTL: "24h", MaxTTL: "24h"})
	for n := range 12 {
		c.repeaters = append(c.repeaters, &repeater{plugin: "smallest-scope", method: lasting, params: []string{"id", fmt.Sprint("client-", n)}})
	}
	for n := range 4 {
		c.doomers = append(c.doomers, &doomer{name: fmt.Sprint("doomed-", n)})
	}
	inSession := &repeater{plugin: "lounge", method: loungeMethod}

	for range kills {
		c.talk(t, owner, 50+rng.Int64N(500), func() { p.End(t, syscall.SIGKILL) })
		p, owner = c.up(t, data)
		left := map[string]int64{}
		for _, m := range owner.Memories("") {
			left[m.MemoryID] = m.Messages
			for _, s := range c.dead {
				if strings.HasPrefix(m.MemoryID, s) {
					t.Errorf("%s is alive, of a WebSocket that was killed", m.MemoryID)
				}
			}
		}
		for _, r := range c.repeaters {
			if n := left[r.memory]; n != 0 && n != int64(1+2*r.told) && n != int64(3+2*r.told) {
				t.Errorf("%s has %d messages after %d acknowledged turns", r.memory, n, r.told)
			}
			// What was not acknowledged is said again now.
			if err := r.say(t.Context(), owner); err != nil {
				t.Fatalf("%s says turn %d again: %v", r.memory, r.told+1, err)
			}
		}
		for _, d := range c.doomers {
			d.check(t, left)
		}
		if err := inSession.say(t.Context(), owner.With("Carrel-Session", in.ID)); err != nil {
			t.Fatalf("in the session that lasts: %v", err)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, r := range append(slices.Clone(c.repeaters), inSession) {
		r.check(t, owner)
	}
	if code := p.End(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	nothingOpen(t, data)
	t.Logf("%d kills; %d turns acknowledged, %.0f/s while everybody talked; ready again within %v at most",
		kills, c.acked.Load(), float64(c.acked.Load())/c.busy.Seconds(), c.slowest.Round(time.Millisecond))
}

// nothingOpen checks, in the database of a host that has ended, that no scope
// of a dead request or WebSocket is left.
func nothingOpen(t *testing.T, data string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(data, "carrel.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it only reads
	n, err := s.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n.Scopes[carrel.ScopeRequest] != 0 || n.Scopes[carrel.ScopeSession] != 1 {
		t.Errorf("open scopes: %v, want none of a request and one session", n.Scopes)
	}
}
