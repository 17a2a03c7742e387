package host_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/internal/testenv"
)

// TestUploadsThatWaitLeaveRoomForCalls has two tenants upload modules that are
// stuck in their initialisation, until no more of them are taken in.
func TestUploadsThatWaitLeaveRoomForCalls(t *testing.T) {
	const most = 1 << 20
	cfg := testenv.Config()
	cfg.Limits.ModuleBytes, cfg.Limits.ImportBytes, cfg.Limits.BodyBytes = most, most, 4*most
	cfg.Limits.BodyTimeout = time.Second
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install(bot("bot", "one"))
	// padded is almost as large as a module may be, and no other n has its bytes.
	padded := func(n int) []byte {
		wasm := hostile.Stuck("stuck")
		return append(wasm, section(0, vec("pad")+strings.Repeat(string(rune('0'+n)), most-100-len(wasm)))...)
	}
	var all sync.WaitGroup
	for _, name := range []string{"globex", "initech"} {
		c := env.Tenant(name).Client()
		first, err := c.UploadAsync(t.Context(), padded(0), client.UploadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 5 {
			all.Go(func() {
				_, err := c.UploadAsync(t.Context(), padded(n+1), client.UploadOptions{})
				if p, ok := errors.AsType[*client.Problem](err); !ok || p.Code != abi.Overloaded.String() || p.Limit != "bodyBytes" {
					t.Errorf("module %d of %s, which has no room: %v", n+2, name, err)
				}
			})
		}
		defer func() {
			if a, err := c.Admission(t.Context(), first.Digest); err != nil || a.Ended() {
				t.Errorf("the first module does not wait any more, which shows nothing: %+v, %v", a, err)
			}
		}()
	}
	all.Wait()
	acme.Chat("bot/com.acme.MyChat.chat", "id", "1", "msg", strings.Repeat("hello ", 500))
}
