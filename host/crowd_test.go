package host_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// connections counts the sockets that this process has open; 0 where nobody
// can tell.
func connections() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// serving counts the goroutines that have to do with WebSockets and what runs
// on them.
func serving(t *testing.T) int {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
		t.Fatal(err)
	}
	n := 0
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		for _, ours := range []string{"httpapi.(*socket)", "httpapi.(*run)", "invoke.(*Invoker)", "client.(*Socket)", "coder/websocket"} {
			if strings.Contains(stack, ours) {
				n++
				break
			}
		}
	}
	return n
}

func TestAHundredSocketsOfAHundredMessagesLeaveNothing(t *testing.T) {
	const sockets, messages = 100, 100
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.FramesPerSecond = 1_000_000
		env := testenv.New(t, cfg)
		tenants := []*testenv.Actor{env.Tenant("acme"), env.Tenant("globex")}
		for _, a := range tenants {
			a.Install(lives)
			// Connections stay open: the model's, and the client's.
			a.Chat(passing, "msg", "warm up")
		}
		http.DefaultClient.CloseIdleConnections()
		before := connections()
		var all sync.WaitGroup
		ids := make([]string, sockets)
		for n := range sockets {
			a := tenants[n%2]
			s, err := a.Client().Connect(t.Context(), client.SocketOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ids[n] = s.Session
			all.Go(func() {
				for i := range messages {
					msg := fmt.Sprintf("%s says %d", s.Session, i)
					call, err := s.Invoke(t.Context(), client.Frame{Method: sitting, Args: map[string]string{"msg": msg}})
					if err != nil {
						t.Error(err)
						return
					}
					out, err := call.Result(t.Context())
					if err != nil || out.MemoryID != s.Session+"#com.acme.Sitting.chat" {
						t.Errorf("message %d of %s: %+v, %v", i, s.Session, out, err)
						return
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, c := range env.Model.Calls() {
			var whose string
			for _, m := range c.Messages {
				who, _, ok := strings.Cut(m.Content, " says ")
				if !ok {
					continue
				}
				if whose != "" && who != whose {
					t.Fatalf("one send has messages of %s and of %s", whose, who)
				}
				whose = who
			}
		}
		for _, a := range tenants {
			for len(a.Memories("lives")) > 0 { // the last close is under way
			}
		}
		env.Model.Close() // the host keeps connections to it for a while
		http.DefaultClient.CloseIdleConnections()
		for serving(t) > 0 || connections() > before { // the last ends are under way
			runtime.Gosched()
		}
	})
}
