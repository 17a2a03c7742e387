package host_test

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// descriptors counts the files that this process has open; 0 where nobody can
// tell.
func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

func TestAHundredSocketsOfAHundredMessagesLeaveNothing(t *testing.T) {
	sockets, messages := 100, 100
	if testing.Short() {
		sockets, messages = 20, 20
	}
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.FramesPerSecond = 1_000_000
		env := testenv.New(t, cfg)
		tenants := []*testenv.Actor{env.Tenant("acme"), env.Tenant("globex")}
		for _, a := range tenants {
			a.Install(lives)
			// Connections stay open: the model's, and the client's.
			a.Chat(passing, "msg", "warm up")
		}
		settled := func() (goroutines, files int) {
			http.DefaultClient.CloseIdleConnections()
			return runtime.NumGoroutine(), descriptors()
		}
		goroutines, files := settled()
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
		for {             // the ends of the last goroutines are under way as well
			g, f := settled()
			if g <= goroutines && f <= files {
				break
			}
			runtime.Gosched()
		}
	})
}
