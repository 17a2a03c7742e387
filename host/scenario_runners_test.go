package host_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/internal/testenv"
)

// runner is a host that scenarios are played on.
type runner struct {
	addr    func() string         // base URL of the host that runs now
	admin   func() *client.Client // with the administrator's key
	model   *modeltest.Server     // behind the host
	restart func()                // ends the host well and starts it again on its data; nil: its store keeps nothing
	kill    func()                // the same with SIGKILL; nil: it is no process of its own
	socket  bool                  // calls are frames of WebSockets
}

// tuning is what the scenarios' hosts are told beyond their defaults.
type tuning struct {
	messages      int64         // limits.messagesPerHistory
	timeout, idle time.Duration // limits.timeout and memory.historyIdleTtl; 0 = not told
}

// runners are the ways in which each scenario is played.
var runners = map[string]func(t *testing.T, how tuning) *runner{
	"in this process, with the store in memory": func(t *testing.T, how tuning) *runner {
		r := here(t, host.StoreMemory, how)
		r.restart = nil
		return r
	},
	"in this process, with SQLite": func(t *testing.T, how tuning) *runner { return here(t, host.StoreSQLite, how) },
	"on the program, over HTTP":    apart,
	"on the program, on WebSockets": func(t *testing.T, how tuning) *runner {
		r := apart(t, how)
		r.socket = true
		return r
	},
}

// here runs a host in this process.
func here(t *testing.T, store string, how tuning) *runner {
	cfg := testenv.Config()
	cfg.Store, cfg.Limits.MessagesPerHistory = store, how.messages
	if how.idle > 0 {
		cfg.Limits.Timeout, cfg.Memory.HistoryIdleTTL = how.timeout, how.idle
	}
	env := testenv.New(t, cfg)
	return &runner{addr: env.Addr, admin: env.Admin, model: env.Model, restart: env.Restart}
}

// apart runs the program, in a process of its own.
func apart(t *testing.T, how tuning) *runner {
	data, m := t.TempDir(), modeltest.NewServer(t)
	vars := []string{"CARREL_ADMIN_KEY=" + testenv.AdminKey, fmt.Sprintf("CARREL_LIMITS_MESSAGES_PER_HISTORY=%d", how.messages)}
	if how.idle > 0 {
		vars = append(vars, "CARREL_LIMITS_TIMEOUT="+how.timeout.String(), "CARREL_MEMORY_HISTORY_IDLE_TTL="+how.idle.String())
	}
	p := program.Serve(t, data, m, vars...)
	anew := func(s os.Signal, want int) func() {
		return func() {
			if code := p.End(t, s); code != want {
				t.Errorf("%v: exit code %d", s, code)
			}
			p = program.Serve(t, data, m, vars...)
		}
	}
	return &runner{
		addr:    func() string { return p.Base },
		admin:   func() *client.Client { return &client.Client{Base: p.Base, Key: testenv.AdminKey} },
		model:   m,
		restart: anew(syscall.SIGTERM, 0),
		kill:    anew(syscall.SIGKILL, -1),
	}
}

// key makes an API key of a tenant and returns its holder.
func (r *runner) key(t *testing.T, tenant string, k client.NewKey) *testenv.Actor {
	t.Helper()
	made, err := r.admin().CreateKey(t.Context(), tenant, k)
	if err != nil {
		t.Fatal(err)
	}
	return testenv.Remote(t, r.addr, made.Secret, r.model)
}

// tenant makes a tenant with plugins and returns its owner.
func (r *runner) tenant(t *testing.T, name string, plugins []string) *testenv.Actor {
	t.Helper()
	if _, err := r.admin().CreateTenant(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	owner := r.key(t, name, client.NewKey{Role: "owner"})
	for _, p := range plugins {
		switch {
		case p == "scopes":
			owner.Upload(scopes.Module(t))
		case strings.HasPrefix(p, "---"):
			owner.Install(p)
		default:
			owner.Install(testenv.Example(t, p))
		}
	}
	return owner
}
