package sandbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carrelhost/carrel/host/sandbox"
)

// TestAnEntryStaysWhileSomebodyHasItAndNoLonger has an entry in several hands
// at once, of a cache with room for one only.
func TestAnEntryStaysWhileSomebodyHasItAndNoLonger(t *testing.T) {
	const mine, other = "mine", "other"
	for name, tc := range map[string]struct {
		held func(t *testing.T, c sandbox.Cache) (give []func()) // makes mine
	}{
		"one wrote it": {func(t *testing.T, c sandbox.Cache) []func() {
			return []func(){publish(t, c, mine)}
		}},
		"two wrote it": {func(t *testing.T, c sandbox.Cache) []func() {
			first, second := publish(t, c, mine), publish(t, c, mine)
			return []func(){first, second}
		}},
		"one wrote it over what another reads": {func(t *testing.T, c sandbox.Cache) []func() {
			publish(t, c, mine)()
			reader := c.Take(mine)
			return []func(){reader, publish(t, c, mine)}
		}},
		"one found it damaged that another still has, and wrote it again": {func(t *testing.T, c sandbox.Cache) []func() {
			publish(t, c, mine)()
			reader := c.Take(mine)
			c.Drop(mine)
			return []func(){reader, publish(t, c, mine)}
		}},
		"two read it": {func(t *testing.T, c sandbox.Cache) []func() {
			publish(t, c, mine)()
			return []func(){c.Take(mine), c.Take(mine)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := logged(t)
			now := time.Now()
			c, err := sandbox.OpenCache(cfg.CacheDir, 2, func() time.Time { now = now.Add(time.Second); return now }, cfg.Log)
			if err != nil {
				t.Fatal(err)
			}
			give := tc.held(t, c)
			for i, g := range give {
				publish(t, c, other)() // one of the two must go
				if got := entries(t, cfg.CacheDir); !slices.Equal(got, []string{mine}) {
					t.Errorf("before it is given the %d. time there is %q", i+1, got)
				}
				g()
			}
			publish(t, c, other)()
			if got := entries(t, cfg.CacheDir); !slices.Equal(got, []string{other}) {
				t.Errorf("when nobody has it any more there is %q", got)
			}
		})
	}
}

func publish(t *testing.T, c sandbox.Cache, name string) (give func()) {
	t.Helper()
	give, err := c.Publish(name, []byte("12"))
	if err != nil {
		t.Fatal(err)
	}
	return give
}
